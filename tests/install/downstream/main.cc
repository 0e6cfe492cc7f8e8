#include <trireme/core/error.h>

#include <cstdio>

int main() {
  try {
    throw trireme::SystemError(2, "cannot open {}", "x");
  } catch (const trireme::Error& error) {
    std::printf("%s (exit code %d)\n", error.what(), error.exit_code());
  }
}
