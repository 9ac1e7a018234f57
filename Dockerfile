# One image for every service: the command says which. `make image` builds it, `docker compose up` where it is missing.
#
# Behind a mirror: --build-arg PIP_INDEX_URL=..., which pip reads; versions and hashes stay those of the lock. BASE may name
# a Debian 12 with a mirror and certificates of one's own.
ARG BASE=debian:bookworm-slim

FROM ${BASE} AS python
RUN apt-get update \
    && DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends ca-certificates python3 \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --uid 10001 --home-dir /tmp --no-create-home kafscale

FROM python AS build
RUN apt-get update \
    && DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends python3-venv \
    && rm -rf /var/lib/apt/lists/*
ARG PIP_INDEX_URL
ARG PIP_EXTRA_INDEX_URL
# pip trusts whom the base image trusts.
ENV PIP_CERT=/etc/ssl/certs/ca-certificates.crt PIP_DISABLE_PIP_VERSION_CHECK=1
RUN python3 -m venv /opt/kafscale
WORKDIR /src
COPY requirements.lock ./
RUN /opt/kafscale/bin/pip install --no-cache-dir --require-hashes --requirement requirements.lock
COPY pyproject.toml README.md LICENSE ./
COPY kafscale kafscale
COPY services services
# What the operator makes clusters of; services/operator/manifests is a link to it.
COPY k8s k8s
COPY spark spark
RUN /opt/kafscale/bin/pip install --no-cache-dir --no-index --no-deps --no-build-isolation .

FROM python AS kafscale
COPY --from=build /opt/kafscale /opt/kafscale
ENV PATH=/opt/kafscale/bin:$PATH \
    KAFSCALE_HTTP_ADDR=:9093
USER 10001:10001
WORKDIR /tmp
# What /readyz says stands in `docker inspect`.
HEALTHCHECK --interval=5s --timeout=5s --start-period=60s --retries=3 \
    CMD ["python", "-ISc", "from http.client import HTTPConnection as C; c = C('127.0.0.1', 9093, timeout=4); c.request('GET', '/readyz'); r = c.getresponse(); print(r.read().decode()); raise SystemExit(r.status != 200)"]
CMD ["kafscale", "--help"]
