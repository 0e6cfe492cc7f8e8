#!/usr/bin/env bash
# `make demo`: trains a small network on Fashion-MNIST, on two processes and on one, and compares; then trains another
# from a configuration, exports it and asks it what a picture shows.
#
#   setup/demo.sh [FOLDER OF THE PROGRAMS, by default build/bin]
set -euo pipefail
export LC_ALL=C  # numbers with a point

bin=${1:-build/bin}
root=$(cd "$(dirname "$0")/.." && pwd)
logs=${TMPDIR:-/tmp}/trireme-demo.$$
epochs=5
batch=128  # of a process: below, what each step costs on every process (Adam, averaging) hides what they share
progress=()
if [ -t 1 ]; then progress=(--progress); fi
mkdir "$logs"
trap 'rm -rf "$logs"' EXIT

for program in trireme trireme-train trireme-export trireme-infer example_mnist; do
  [ -x "$bin/$program" ] || { echo "demo: no $bin/$program; run: make demo" >&2; exit 1; }
done

# on_cpu COMMAND…: one thread in each process, whatever GPUs there are.
on_cpu() {
  CUDA_VISIBLE_DEVICES=-1 OMP_NUM_THREADS=1 "$@"
}

# failed WHAT CODE: shows what was kept from the console, and ends.
failed() {
  cat "$logs/console" >&2
  echo "demo: the $1 failed (exit $2); the lines above say why" >&2
  exit "$2"
}

# train PROCESSES: sets `seconds`, those of the epochs, and `accuracy`. The launcher's own words are shown only when
# something fails.
train() {
  on_cpu "$bin/trireme" launch -n "$1" --log_dir "$logs/$1" \
    "$bin/example_mnist" --epochs $epochs --batch $batch "${progress[@]}" 2>"$logs/console" || failed training $?
  seconds=$(sed -n 's/.*, \([0-9.]*\) s$/\1/p' "$logs/$1/workerlog.0" | awk '{ sum += $1 } END { print sum }')
  accuracy=$(sed -n 's/.*test accuracy \([0-9.]*\).*/\1/p' "$logs/$1/workerlog.0" | tail -n 1)
}

# data::FashionMnist takes the same: Debian's package has all images, Trireme brings a part of them along.
images="5,000 images" expected=0.80
if [ -n "${TRIREME_DATA_DIR:-}" ]; then
  images="the images in $TRIREME_DATA_DIR"
elif [ -d /usr/share/datasets/fashion-mnist ]; then
  images="60,000 images" expected=0.86
fi
cat <<END
Clothes in ten classes (Fashion-MNIST, $images), a perceptron 784-512-10, Adam, $epochs epochs.
Every process computes on the CPU with one thread and batches of $batch, so that two are compared with one on equal terms.

Two processes:
END
train 2
two=$seconds two_accuracy=$accuracy
printf '\nOne process:\n'
train 1

printf '\n2 processes: %.2f s, test accuracy %.3f\n1 process:   %.2f s, test accuracy %.3f\n' \
  "$two" "$two_accuracy" "$seconds" "$accuracy"
awk "BEGIN { printf \"%.1f times as many images a second, start and end not counted\n\", $seconds / $two }"
if [ "$(nproc)" -lt 2 ]; then
  echo "(This machine has one core, which the two processes shared.)"
elif awk "BEGIN { exit !($seconds / $two < 1.2) }"; then
  echo "(Less than two cores should give. Are other programs using them? uptime says: $(uptime | sed 's/.*load/load/'))"
fi
awk "BEGIN { exit !($two_accuracy >= $expected) }" ||
  { echo "demo: test accuracy $two_accuracy, but this network reaches $expected; please report it" >&2; exit 1; }

cat <<END

A network for pictures (LeNet, from a configuration file), three epochs on two processes; then a file for inference:
END
config=configs/classification/LeNet_fashion_mnist.yaml
on_cpu "$bin/trireme" launch -n 2 --log_dir "$logs/lenet" "$bin/trireme" train -c "$root/$config" \
  -o Global.epochs=3 Global.output_dir="$logs/output" >"$logs/console" 2>&1 || failed training $?
sed -n 's/.*\[best metric: \(0\.[0-9]\{3\}\).*/test accuracy \1/p' "$logs/console" | tail -n 1
on_cpu "$bin/trireme" export -c "$root/$config" -o Global.pretrained_model="$logs/output/LeNet/best_model" \
  Global.save_inference_dir="$logs/inference" Infer.PostProcess.topk=3 >"$logs/console" 2>&1 || failed export $?
echo "exported: $(cd "$logs/inference" && echo *)"
printf '\nWhat does it see in examples/data/fashion-mnist/ankle_boot.png?\n'
on_cpu "$bin/trireme" infer --model-dir "$logs/inference" --image "$root/examples/data/fashion-mnist/ankle_boot.png" \
  2>"$logs/console" || failed inference $?

cat <<END

What to try next:
  $bin/trireme launch -n 4 $bin/example_mnist      # more processes
  $bin/trireme launch -n 2 $bin/trireme train -c $config      # all 20 epochs
  $bin/trireme launch --dashboard 8080 -n 2 $bin/example_mnist --epochs 100      # see it live at http://127.0.0.1:8080/
  $bin/trireme top                                 # the same in another terminal of this folder
  $bin/trireme doctor                              # what this machine offers
  $bin/trireme launch -n 2 --wrap '1:timeout -s KILL 2' $bin/example_mnist      # rank 1 is killed: who, why, what next
END
