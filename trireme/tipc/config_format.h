// The two layouts of a test case: which line means what.
//
// A case is a text of `key:value` lines. A line's number says what it is for, and its key is the program's option
// for it: line 8 of the short format is the batch size, whether its key is `--batch-size` or `-o DataLoader.Train.sampler.
// batch_size`. So a key is known exactly (`model_name`), by its end (`norm_train`, `amp_train`), or by a word in it
// (`epoch`); that is enough to notice that a line is missing.
//
//   format_for(32).lines[5].name == "epochs"
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace trireme::tipc {

/// One line of a format.
struct LineRule {
  enum class Kind {
    header,  // ====train_params====; `keys` must be in it
    filler,  // ##
    exact,   // the key is one of `keys`
    ending,  // the key ends in one of `keys`
    word,    // the key contains one of `keys`, whatever its case and hyphens
    spare,   // any key
  };
  Kind kind;
  const char* name;  ///< what Trireme calls it: `--set epochs=…` whatever the key is
  const char* keys;  ///< separated by spaces
};

struct Format {
  const char* title;  ///< "32-line"
  std::vector<LineRule> lines;
};

/// The nearest of the two to a file of so many lines.
const Format& format_for(size_t lines);

/// Whether a line with this key may stand there. `null` stands for a key that the program does not have, except where
/// the key is a name of the format itself.
bool key_fits(const LineRule& rule, std::string_view key);
/// "'model_name'" or "a key with 'epoch' in it": for messages.
std::string expected_key(const LineRule& rule);

}  // namespace trireme::tipc
