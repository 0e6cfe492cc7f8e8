#include "trireme/core/shell.h"

#include "trireme/core/text.h"

namespace trireme {
namespace {

using Words = std::vector<std::string>;

/// Takes one word after the other.
class Splitter {
 public:
  explicit Splitter(std::string_view text) : text_(text) {}

  /// False: no word is left, or a quote is open (then whole() is false).
  bool next(std::string& word) {
    while (at_ < text_.size() && is_space(text_[at_])) ++at_;
    if (at_ >= text_.size()) return false;
    word.clear();
    while (at_ < text_.size() && !is_space(text_[at_]))
      if (!take(word)) return whole_ = false;
    return true;
  }
  bool whole() const { return whole_; }

 private:
  static bool is_space(char c) { return c == ' ' || c == '\t'; }

  bool take(std::string& word) {
    const char c = text_[at_++];
    if (c == '\'' || c == '"') return take_quoted(word, c);
    if (c == '\\' && at_ == text_.size()) return false;
    word += c == '\\' ? text_[at_++] : c;
    return true;
  }

  bool take_quoted(std::string& word, char quote) {
    for (; at_ < text_.size(); ++at_) {
      if (text_[at_] == quote) return ++at_, true;
      const bool escape = quote == '"' && text_[at_] == '\\' && at_ + 1 < text_.size() &&
                          (text_[at_ + 1] == '"' || text_[at_ + 1] == '\\');
      if (escape) ++at_;
      word += text_[at_];
    }
    return false;
  }

  std::string_view text_;
  size_t at_ = 0;
  bool whole_ = true;
};

}  // namespace

std::optional<Words> split_words(std::string_view text) {
  Words words;
  Splitter splitter(text);
  for (std::string word; splitter.next(word);) words.push_back(word);
  return splitter.whole() ? std::optional(words) : std::nullopt;
}

std::string shell_word(std::string_view word) {
  constexpr std::string_view kPlain = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789@%+=:,./-_";
  if (!word.empty() && word.find_first_not_of(kPlain) == std::string_view::npos) return std::string(word);
  std::string quoted = "'";
  for (const char c : word) quoted += c == '\'' ? std::string_view("'\\''") : std::string_view(&c, 1);
  return quoted + "'";
}

std::string show_words(const Words& words) {
  Words shown;
  for (const std::string& word : words) shown.push_back(shell_word(word));
  return join(shown, " ");
}

}  // namespace trireme
