#include "trireme/comm/engine/rank_words.h"

#include <algorithm>
#include <cctype>
#include <utility>

#include "trireme/core/text.h"

namespace trireme {
namespace {

bool is_digit(char letter) {
  return std::isdigit(static_cast<unsigned char>(letter)) != 0;
}

bool is_word_part(char letter) {
  return std::isalnum(static_cast<unsigned char>(letter)) != 0 || letter == '_';
}

// Reads a text from left to right and writes it again.
class Translator {
 public:
  Translator(std::string_view text, const std::vector<int>& members) : text_(text), members_(members) {}

  std::string run() {
    while (at_ < text_.size()) {
      const bool begins_word = at_ == 0 || !is_word_part(text_[at_ - 1]);
      if (begins_word && take("ranks "))
        numbers();
      else if (begins_word && take("rank "))
        number();
      else
        result_ += text_[at_++];
    }
    return std::move(result_);
  }

 private:
  bool take(std::string_view word) {
    if (!text_.substr(at_).starts_with(word)) return false;
    result_ += word;
    at_ += word.size();
    return true;
  }
  bool number_follows(std::string_view joint) const {
    const size_t next = at_ + joint.size();
    return text_.substr(at_).starts_with(joint) && next < text_.size() && is_digit(text_[next]);
  }
  void number() {
    const size_t begin = at_;
    while (at_ < text_.size() && is_digit(text_[at_])) ++at_;
    const std::string_view digits = text_.substr(begin, at_ - begin);
    const auto found = parse_int(digits, 0, static_cast<int64_t>(members_.size()) - 1);
    result_ += found ? std::to_string(members_[static_cast<size_t>(*found)]) : std::string(digits);
  }
  void numbers() {
    number();
    for (;;) {
      const bool more = (number_follows(", ") && take(", ")) || (number_follows(" and ") && take(" and "));
      if (!more) return;
      number();
    }
  }

  const std::string_view text_;
  const std::vector<int>& members_;
  size_t at_ = 0;
  std::string result_;
};

}  // namespace

std::string in_group_numbers(std::string_view text, const std::vector<int>& members) {
  const size_t mark = text.find(kWholeGroup);
  if (mark == std::string_view::npos) return Translator(text, members).run();
  return Translator(text.substr(0, mark), members).run() + std::string(text.substr(mark + kWholeGroup.size()));
}

std::string name_ranks(const std::vector<int>& ranks) {
  std::vector<std::string> words;
  for (const int rank : ranks) words.push_back(std::to_string(rank));
  return (ranks.size() == 1 ? "rank " : "ranks ") + join(words, ", ");
}

}  // namespace trireme
