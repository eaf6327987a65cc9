# Understudy's command line, without network at run time:
#   docker build -t understudy .
#   docker run --rm --network none -v "$PWD:/data" -v understudy-ledger:/ledger understudy synthesize people.csv ...
FROM python:3.12-slim AS build
WORKDIR /src
COPY pyproject.toml README.md LICENSE ./
COPY src ./src
COPY docs/guide/analysts.md ./docs/guide/
RUN pip wheel --no-cache-dir --wheel-dir /wheels ".[eval,office,sql]"

FROM python:3.12-slim
COPY --from=build /wheels /wheels
RUN pip install --no-cache-dir --no-index --find-links /wheels "understudy[eval,office,sql]" && rm -r /wheels \
    && useradd --create-home understudy && mkdir /ledger /data && chown understudy /ledger /data
USER understudy
ENV UNDERSTUDY_LEDGER=/ledger/ledger.sqlite NUMBA_CACHE_DIR=/ledger/compiled
VOLUME ["/ledger"]
WORKDIR /data
ENTRYPOINT ["understudy"]
CMD ["--help"]
