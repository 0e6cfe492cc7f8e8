# docker build -t trireme .        docker run --rm -it --net=host --shm-size=2g -v "$PWD:/app" -w /app trireme
# With CUDA: docker build --build-arg TRIREME_LIBTORCH=cuda -t trireme-cuda .        and docker run --gpus all …
FROM debian:12-slim

# The packages and libtorch first: this layer changes only when the set-up does.
ARG TRIREME_LIBTORCH=cpu
ENV TRIREME_LIBTORCH=$TRIREME_LIBTORCH
COPY setup /trireme/setup
RUN /trireme/setup/setup.sh build

COPY . /trireme
RUN make -C /trireme install PREFIX=/usr/local

ENTRYPOINT ["trireme"]
CMD ["--help"]
