// The answers in a file: what `trireme infer` or another program said about each picture.
//
//   const AnswerFile log = parse_answers(*read_file("infer.log"), "infer.log");
//   log.answers.at("cat.jpg").numbers
//
// An answer is a line with a tab behind the picture: `picture<TAB>json`, or what `trireme infer` and PaddleClas print:
// `picture:<TAB>class id(s): [1, 2], score(s): [0.9, 0.1], label_name(s): [...]`. Or it is what `trireme infer --format
// jsonl` prints: `{"image":"picture","class_ids":[1,2],…}`. Other lines without a tab are none. A line with one that says
// something else is a problem, never left out in silence.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::tipc {

struct Number {
  double value = 0;
  bool exact = false;  ///< a class id: no tolerance
  bool whole = false;  ///< of a list without names, where a whole number may be a class id
};

struct Answer {
  size_t line = 0;
  std::vector<Number> numbers;  ///< class ids first, then scores, then the rest
};

struct AnswerFile {
  std::string file;
  std::map<std::string, Answer> answers = {};  ///< by the picture's path
  std::vector<std::string> problems = {};      ///< "infer.log:7: cat.jpg: …"
  int decimals = 0;                            ///< the most digits behind the point of a number; 0: all are whole
};

/// `file` is what messages call it.
AnswerFile parse_answers(std::string_view text, const std::string& file);

}  // namespace trireme::tipc
