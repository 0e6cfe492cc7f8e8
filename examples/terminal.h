// What an example needs to be pleasant on a terminal, and is no part of training.
#pragma once

#include <trireme/core/error.h>

#include <charconv>
#include <cstdint>
#include <filesystem>
#include <iostream>
#include <map>
#include <string>

/// The numbers on the command line, "--epochs 3", and for the others those they have by default. A word alone is 1.
/// UsageError, with what there is, for anything else.
inline std::map<std::string, int> options(int argc, char** argv, std::map<std::string, int> known = {}) {
  const std::string program = std::filesystem::path(argv[0]).filename();
  std::string usage = program;
  for (const auto& [word, number] : known) usage += fmt::format(" [{} {}]", word, number);
  for (int i = 1; i < argc; ++i) {
    const auto option = known.find(argv[i]);
    if (option == known.end()) throw trireme::UsageError("{}: what is '{}'? Usage: {}", program, argv[i], usage);
    option->second = 1;
    if (i + 1 == argc || known.contains(argv[i + 1])) continue;
    const std::string number = argv[++i];
    const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), option->second);
    if (error != std::errc() || end != number.data() + number.size())
      throw trireme::UsageError("{}: {} is '{}', which is no number. Usage: {}", program, option->first, number, usage);
  }
  return known;
}

/// A line that grows, twenty times an epoch; the next line that is printed takes its place.
inline void show_progress(int epoch, int64_t step, int64_t steps) {
  if (step * 20 / steps == (step - 1) * 20 / steps) return;
  const std::string bar(static_cast<size_t>(step * 20 / steps), '#');
  std::cout << fmt::format("epoch {} {:3}% {:.<20}\r", epoch, step * 100 / steps, bar) << std::flush;
}
