"""What a release needs beside the code: one version everywhere, and lists of what is in it."""
