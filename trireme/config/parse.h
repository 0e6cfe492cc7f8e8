// YAML text -> tree of values, within limits: a hostile or broken file costs milliseconds and gives a clear error.
//
// As YAML 1.1, with these differences: a key must be a short text and may stand only once in its section; one document
// a file; an alias is a copy, so that changing one place does not change another; `None` is null, as in Python. Merge
// keys (`<<: *name`) are done here. Tags are ignored, but for !!str.
#pragma once

#include <string>

#include "trireme/config/value.h"

namespace trireme::config {

struct Limits {
  size_t bytes = 1 << 20;
  int depth = 50;           ///< sections within sections
  size_t values = 200'000;  ///< after copying aliases; a long text counts as several
  size_t key_bytes = 200;
};

/// `source` names the text in errors, with its lines; `first_line` 0 leaves the lines out, for texts of one line.
/// Throws UsageError: what is wrong, in which line.
ValuePtr parse_yaml(const std::string& text, const std::string& source, int first_line = 1, const Limits& limits = {});

}  // namespace trireme::config
