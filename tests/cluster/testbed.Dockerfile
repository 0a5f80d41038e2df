# What the tests run beside operator and workers: a Valkey server, the simulated provider and the
# command line. Built as a user would build his: FROM the worker's image.
ARG WORKER_IMAGE=llmqueue-worker
FROM ${WORKER_IMAGE}
USER 0
COPY tests/cluster/testbed.txt /tmp/
RUN --mount=type=secret,id=pip.conf,target=/etc/pip.conf \
    pip install --quiet --no-cache-dir --require-hashes -r /tmp/testbed.txt
USER 65532:65532
ENTRYPOINT ["llmqueue"]
