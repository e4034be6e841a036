# Tidegate's image: every process of a deployment is this image with another command (docker-compose.yml).

FROM python:3.13-slim-bookworm AS build
WORKDIR /build
RUN python -m venv /app
# The dependencies first: they change seldom, and each is checked against its hash.
COPY requirements.lock ./
RUN /app/bin/pip install --no-cache-dir --disable-pip-version-check --require-hashes -r requirements.lock
COPY pyproject.toml README.md LICENSE ./
COPY worker worker
COPY pipeline pipeline
COPY migrations migrations
RUN /app/bin/pip install --no-cache-dir --disable-pip-version-check --no-deps --no-build-isolation --no-index .

FROM python:3.13-slim-bookworm
LABEL org.opencontainers.image.title="Tidegate" org.opencontainers.image.licenses="Apache-2.0"
# A fixed uid, so that a volume keeps its owner from one image to the next. The folders exist with that owner because
# a new named volume takes owner and mode from what lies at its mount point.
RUN useradd --system --uid 10001 --user-group --no-create-home --home-dir /var/lib/tidegate --shell /usr/sbin/nologin tidegate \
    && install -d -m 0700 -o tidegate -g tidegate /var/lib/tidegate /var/lib/tidegate/blobs
COPY --from=build /app /app
ENV PATH=/app/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    TIDEGATE_HOME=/var/lib/tidegate \
    TIDEGATE_LOG_FORMAT=json
USER tidegate
WORKDIR /var/lib/tidegate
ENTRYPOINT ["tidegate"]
CMD ["--help"]
