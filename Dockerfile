# One image for all services; the command says which: `docker run IMAGE scheduler`, `docker run IMAGE dataplane` …
# Layers from the one that changes least to the one that changes most: Python, dependencies, luftpause.
ARG PYTHON=python:3.13-slim

FROM ${PYTHON} AS python

# What of pyproject.toml the dependencies are made of: a change of anything else there keeps their layer.
FROM python AS wanted
COPY pyproject.toml /
RUN ["python", "-c", "import tomllib; p = tomllib.load(open('/pyproject.toml', 'rb'))['project']; extras = p['optional-dependencies']; print(*p['dependencies'], *extras.get('otel', ()), *extras.get('redis', ()), sep='\\n', file=open('/requirements.txt', 'w'))"]

FROM python AS dependencies
RUN apt-get update \
 && apt-get install -y --no-install-recommends binutils \
 && rm -rf /var/lib/apt/lists/*
COPY constraints.txt /
COPY --from=wanted /requirements.txt /
# Symbols for debuggers are cut out of extension modules (12 MB of uvloop's 14), and sources in Cython are left out.
RUN --mount=type=cache,target=/root/.cache/pip \
    python -m venv --without-pip /opt/luftpause \
 && python -m pip --python /opt/luftpause/bin/python install --disable-pip-version-check --no-compile -c /constraints.txt -r /requirements.txt \
 && find /opt/luftpause -name '*.so' -exec strip --strip-unneeded {} + \
 && find /opt/luftpause \( -name '*.pyx' -o -name '*.pxd' -o -name '*.pxi' -o -name '*.pyi' -o -name '*.c' -o -name '*.h' \) -delete \
 && find /opt/luftpause -type d -name tests -prune -exec rm -rf {} + \
 && /opt/luftpause/bin/python -m compileall -q -j 0 --invalidation-mode unchecked-hash -x pygments/lexers /opt/luftpause/lib

FROM dependencies AS luftpause
COPY pyproject.toml README.md LICENSE /src/
COPY services /src/services
COPY fakes /src/fakes
COPY bench /src/bench
RUN --mount=type=cache,target=/root/.cache/pip \
    python -m pip --python /opt/luftpause/bin/python install --disable-pip-version-check --no-compile --no-deps --root /only /src \
 && /opt/luftpause/bin/python -m compileall -q -j 0 --invalidation-mode unchecked-hash -s /only -p / /only/opt/luftpause/lib
COPY --chmod=755 deploy/docker/healthy.py /only/usr/local/bin/healthy

# The base without what a running service never needs: package managers, perl, character sets of the C library, documentation. It becomes
# one layer below. What is installed stays known to dpkg's lists, so that scanners find it.
FROM python AS root
RUN python -m pip uninstall --yes --quiet --root-user-action=ignore pip \
 && stdlib=$(python -c 'import sysconfig; print(sysconfig.get_path("stdlib"))') \
 && for part in ensurepip idlelib tkinter turtledemo pydoc_data test lib2to3; do rm -rf "${stdlib:?}/$part"; done \
 && rm -rf "${stdlib:?}"/config-* /usr/local/include /usr/share/python-wheels /usr/share/doc /usr/share/man /usr/share/locale /usr/share/info \
      /usr/share/bash-completion /usr/share/perl* /usr/bin/perl* /usr/lib/*/perl* /usr/lib/*/gconv \
      /usr/bin/apt* /usr/lib/apt /usr/lib/*/libapt* /usr/bin/dpkg* /var/lib/dpkg/info/*.list /var/lib/dpkg/info/*.md5sums \
      /var/lib/apt /var/cache/apt /var/cache/debconf /var/log/* /root/.cache /tmp/* \
 && python -m compileall -q -j 0 --invalidation-mode unchecked-hash "$stdlib" \
 && groupadd --gid 10001 luftpause \
 && useradd --uid 10001 --gid 10001 --no-create-home --home-dir /var/lib/luftpause --shell /usr/sbin/nologin luftpause \
 && install -d -o luftpause -g luftpause -m 750 /var/lib/luftpause \
 && install -d /etc/luftpause

# For compose.ollama.yaml: tools that look things up in Wikipedia.
FROM python AS wikipedia-mcp
RUN --mount=type=cache,target=/root/.cache/pip \
    python -m pip install --disable-pip-version-check --root-user-action=ignore wikipedia-mcp==2.0.1
COPY --chmod=755 deploy/docker/healthy.py /usr/local/bin/healthy
USER 10001:10001
ENV HOME=/tmp
ENTRYPOINT ["wikipedia-mcp"]
CMD ["--transport", "http", "--host", "0.0.0.0", "--port", "8081", "--path", "/mcp"]

FROM scratch
COPY --from=root / /
COPY --from=dependencies /opt/luftpause /opt/luftpause
COPY --from=luftpause /only /
ENV PATH=/opt/luftpause/bin:/usr/local/bin:/usr/bin:/bin \
    LANG=C.UTF-8 \
    HOME=/tmp \
    PYTHONDONTWRITEBYTECODE=1
# The runtime keeps its journal in ./state unless told otherwise: mount a volume here.
WORKDIR /var/lib/luftpause
USER 10001:10001
EXPOSE 5000 5001 7000 8080
STOPSIGNAL SIGTERM
ENTRYPOINT ["luftpause"]
CMD ["--help"]
LABEL org.opencontainers.image.title="luftpause" \
      org.opencontainers.image.description="Keeps the state of an agent's run between harnesses and LLM inference engines." \
      org.opencontainers.image.source="https://github.com/luftpause/luftpause" \
      org.opencontainers.image.licenses="Apache-2.0" \
      io.modelcontextprotocol.server.name="io.github.luftpause/luftpause"
