// Whether two runs gave the same answers for the same pictures.
//
//   const Comparison result = compare(parse_answers(*expected, "gt_fp32.txt"), parse_answers(*log, "infer.log"), {});
//   return result.same() ? 0 : 1;
#pragma once

#include <string>
#include <vector>

#include "trireme/tipc/answers.h"

namespace trireme::tipc {

struct Tolerance {
  double atol = 1e-3;
  double rtol = 1e-3;
};

struct Comparison {
  size_t pictures = 0;  ///< that both have
  size_t numbers = 0;   ///< of these
  std::vector<std::string> wrong;
  bool same() const { return wrong.empty() && pictures > 0; }
};

/// Wrong is: a picture that only one of them has, another count of numbers, a class id that is not equal, a number
/// farther off than atol + rtol * |expected|, and whatever the files themselves have wrong. Each line names file, line
/// and picture.
Comparison compare(const AnswerFile& expected, const AnswerFile& found, const Tolerance& tolerance);

/// What to know when the numbers of a file are rounded more coarsely than atol; "" when they are not.
std::string rounding_note(const AnswerFile& file, const Tolerance& tolerance);

/// The precision in a file's name: fp32, fp16, bf16, int8 or "".
std::string precision_in_name(const std::string& file);

}  // namespace trireme::tipc
