# Three images from one build: `--target operator`, `worker` and `cli`.
#
# Behind a company's index or proxy hand over pip's settings as a secret, so that no layer keeps them:
#   docker build --secret id=pip.conf,src=$HOME/.config/pip/pip.conf --target worker .
ARG BASE_IMAGE=python:3.13-slim

# pip stays in the environment: images FROM the worker's install their handlers into it.
FROM ${BASE_IMAGE} AS environment
RUN python3 -m venv /opt/llmqueue
ENV PATH=/opt/llmqueue/bin:$PATH \
    PIP_DISABLE_PIP_VERSION_CHECK=1 \
    PIP_NO_CACHE_DIR=1 \
    PIP_ROOT_USER_ACTION=ignore

# Only what our own package consists of, below /project, at the places it has in the environment.
FROM environment AS project
WORKDIR /src
COPY requirements/build.txt requirements/
RUN --mount=type=secret,id=pip.conf,target=/etc/pip.conf \
    pip install --quiet --require-hashes -r requirements/build.txt
COPY . .
RUN pip install --quiet --no-warn-script-location --no-deps --no-build-isolation \
        --root /project .

# Dependencies have layers of their own: a change of our code leaves them as they are.
FROM environment AS operator-dependencies
COPY requirements/operator.txt /tmp/
RUN --mount=type=secret,id=pip.conf,target=/etc/pip.conf \
    pip install --quiet --require-hashes -r /tmp/operator.txt

FROM environment AS worker-dependencies
COPY requirements/worker.txt /tmp/
RUN --mount=type=secret,id=pip.conf,target=/etc/pip.conf \
    pip install --quiet --require-hashes -r /tmp/worker.txt

FROM environment AS cli-dependencies
COPY requirements/cli.txt /tmp/
RUN --mount=type=secret,id=pip.conf,target=/etc/pip.conf \
    pip install --quiet --require-hashes -r /tmp/cli.txt

# What lists the Python packages of an image as they were installed, and is in none of them.
FROM environment AS inventory
RUN python3 -m venv /opt/inventory
COPY requirements/sbom.txt /tmp/
RUN --mount=type=secret,id=pip.conf,target=/etc/pip.conf \
    /opt/inventory/bin/pip install --quiet --require-hashes -r /tmp/sbom.txt
COPY pyproject.toml /tmp/
ENV WRITE_SBOM="/opt/inventory/bin/cyclonedx-py environment --output-reproducible \
    --pyproject /tmp/pyproject.toml --output-file /sbom.cdx.json /opt/llmqueue"

FROM inventory AS operator-sbom
COPY --from=operator-dependencies /opt/llmqueue /opt/llmqueue
RUN $WRITE_SBOM

FROM inventory AS worker-sbom
COPY --from=worker-dependencies /opt/llmqueue /opt/llmqueue
RUN $WRITE_SBOM

FROM inventory AS cli-sbom
COPY --from=cli-dependencies /opt/llmqueue /opt/llmqueue
RUN $WRITE_SBOM

# The root filesystem is read-only at run time, so all bytecode is written here. python:slim comes
# without any for the standard library.
FROM ${BASE_IMAGE} AS runtime
RUN python3 -c 'import sysconfig; print(sysconfig.get_path("stdlib"))' \
    | xargs python3 -m compileall -q -x '/(test|tests|idlelib|lib2to3|tkinter|turtledemo|site-packages)/' \
 && echo 'llmqueue:x:65532:65532::/app:/usr/sbin/nologin' >> /etc/passwd \
 && echo 'llmqueue:x:65532:' >> /etc/group \
 && mkdir /app
ENV PATH=/opt/llmqueue/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1
# `python -m` looks for modules here too: the place for a user's handlers.
WORKDIR /app
LABEL org.opencontainers.image.licenses=Apache-2.0

# Version and revision come last in each image: another commit changes no layer by them. There is no
# label for the time of the build, so that the same sources give the same image.
FROM runtime AS operator
COPY --from=operator-dependencies /opt/llmqueue /opt/llmqueue
COPY --from=operator-sbom /sbom.cdx.json /usr/share/doc/llmqueue/
COPY --from=project /project /
USER 65532:65532
ENTRYPOINT ["python", "-m", "llmqueue_operator"]
ARG VERSION=0.0.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title=llmqueue-operator \
      org.opencontainers.image.description="Plans workers and budgets for LLM job queues" \
      org.opencontainers.image.version=${VERSION} \
      org.opencontainers.image.revision=${REVISION}

FROM runtime AS worker
COPY --from=worker-dependencies /opt/llmqueue /opt/llmqueue
COPY --from=worker-sbom /sbom.cdx.json /usr/share/doc/llmqueue/
COPY --from=project /project /
USER 65532:65532
ENTRYPOINT ["python", "-m", "llmqueue_worker"]
ARG VERSION=0.0.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title=llmqueue-worker \
      org.opencontainers.image.description="Runs LLM jobs at the provider's pace" \
      org.opencontainers.image.version=${VERSION} \
      org.opencontainers.image.revision=${REVISION}

# Runs nothing by itself: hands in jobs and looks at queues from within a cluster, and is the
# simulated provider to practise on.
FROM runtime AS cli
COPY --from=cli-dependencies /opt/llmqueue /opt/llmqueue
COPY --from=cli-sbom /sbom.cdx.json /usr/share/doc/llmqueue/
COPY --from=project /project /
USER 65532:65532
ENTRYPOINT ["llmqueue"]
ARG VERSION=0.0.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title=llmqueue-cli \
      org.opencontainers.image.description="The command line of llmqueue, with a simulated provider" \
      org.opencontainers.image.version=${VERSION} \
      org.opencontainers.image.revision=${REVISION}
