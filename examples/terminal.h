// What an example needs to be pleasant on a terminal, and is no part of training.
#pragma once

#include <fmt/core.h>

#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <string>

/// The number after the word on the command line, or `otherwise`; 1 for a word alone.
inline int option(int argc, char** argv, const std::string& word, int otherwise) {
  for (int i = 1; i < argc; ++i)
    if (argv[i] == word) return i + 1 < argc && argv[i + 1][0] != '-' ? std::atoi(argv[i + 1]) : 1;
  return otherwise;
}

/// A line that grows, twenty times an epoch; the next line that is printed takes its place.
inline void show_progress(int epoch, int64_t step, int64_t steps) {
  if (step * 20 / steps == (step - 1) * 20 / steps) return;
  const std::string bar(static_cast<size_t>(step * 20 / steps), '#');
  std::cout << fmt::format("epoch {} {:3}% {:.<20}\r", epoch, step * 100 / steps, bar) << std::flush;
}
