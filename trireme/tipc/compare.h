// Whether two runs gave the same answers for the same pictures.
//
//   const Comparison result = compare(parse_answers(*expected, "gt_fp32.txt"), parse_answers(*log, "infer.log"), {});
//   return result.same() ? 0 : 1;
#pragma once

#include <string>
#include <vector>

#include "trireme/tipc/answers.h"

namespace trireme::tipc {

/// A number may be off by atol + rtol * |expected|, as Paddle's compare_results.py has it, with one difference: atol is
/// meant for scores near 1. Of the thousand scores of an untrained network each is about 0.001, and atol alone would
/// let all of them pass. So below kFullAtol it shrinks with the expected number: at the defaults no number may be off by
/// more than 1.1 %. What rounding has taken away is allowed still.
struct Tolerance {
  static constexpr double kFullAtol = 0.1;
  double atol = 1e-3;
  double rtol = 1e-3;

  /// `rounding` is how far rounding alone may have moved either number.
  double allowed(double expected, double rounding) const;
};

struct Comparison {
  size_t pictures = 0;  ///< that both have
  size_t numbers = 0;   ///< of these
  std::vector<std::string> wrong;
  bool same() const { return wrong.empty() && pictures > 0; }
};

/// Wrong is: a picture that only one of them has, another count of numbers, a class id that is not equal, a number
/// farther off than the tolerance allows, and whatever the files themselves have wrong. Numbers of lists without names
/// that are whole in both files count as class ids. Pictures go by their names without folders; where one of the files
/// has a name twice, by their paths. Each line names file, line and picture.
Comparison compare(const AnswerFile& expected, const AnswerFile& found, const Tolerance& tolerance);

/// What to know when the numbers of a file are rounded more coarsely than atol; "" when they are not.
std::string rounding_note(const AnswerFile& file, const Tolerance& tolerance);

/// What to know when all pictures of a file have one answer, as an untrained network gives it: pictures that were mixed
/// up would pass. "" when two can be told apart.
std::string sameness_note(const AnswerFile& file, const Tolerance& tolerance);

/// The precision in a file's name: fp32, fp16, bf16, int8 or "".
std::string precision_in_name(const std::string& file);

}  // namespace trireme::tipc
