// Whether two runs gave the same answers for the same images.
//
//   const Answers expected = parse_answers(read_file("gt_fp32.txt"));
//   const auto wrong = differences(expected, parse_answers(log), {.atol = 1e-3, .rtol = 1e-3});
//
// An answer is a line with a tab: `image<TAB>json`, or what `trireme infer` and PaddleClas print:
// `image:<TAB>class id(s): [1, 2], score(s): [0.9, 0.1], label_name(s): [...]`. Other lines are none.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::tipc {

struct Number {
  double value = 0;
  bool exact = false;  ///< a class id: no tolerance
};

/// By the image's file name without its folder; of several answers for an image the first.
using Answers = std::map<std::string, std::vector<Number>>;

Answers parse_answers(std::string_view text);

struct Tolerance {
  double atol = 1e-3;
  double rtol = 1e-3;
};

/// What differs, a line each: every expected image must be there, with as many numbers, each within
/// atol + rtol * |expected|.
std::vector<std::string> differences(const Answers& expected, const Answers& found, const Tolerance& tolerance);

/// The precision in a file's name: fp32, fp16, bf16, int8 or "".
std::string precision_in_name(const std::string& file);

}  // namespace trireme::tipc
