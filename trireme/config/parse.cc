#include "trireme/config/parse.h"

#include <fmt/core.h>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/mark.h>
#include <yaml-cpp/parser.h>

#include <algorithm>
#include <map>
#include <optional>
#include <sstream>

#include "trireme/core/error.h"
#include "trireme/core/text.h"

namespace trireme::config {
namespace {

constexpr size_t kBytesPerValue = 32;  // of text that count as one more value
constexpr std::string_view kMergeKey = "<<";

/// Builds the tree from the parser's events. It is called for each of them, so it stops a text that is nested too
/// deeply before the parser's own recursion overflows the stack.
class Builder : public YAML::EventHandler {
 public:
  Builder(const std::string& source, int first_line, const Limits& limits)
      : source_(std::make_shared<const std::string>(source)), first_line_(first_line), limits_(limits) {}

  ValuePtr root() const { return root_; }
  Origin origin(int line) const { return {source_, first_line_ > 0 ? line + first_line_ : 0}; }

  [[noreturn]] void refuse(int line, const std::string& what) const {
    const std::string path = current_path();
    throw UsageError("{}: {}{}{}", origin(line).text(), printable(path), path.empty() ? "" : ": ", what);
  }

  void OnDocumentStart(const YAML::Mark& mark) override {
    if (documents_++ > 0) refuse(mark.line, "a second document begins here; a configuration is one document");
  }
  void OnDocumentEnd() override {}
  void OnAnchor(const YAML::Mark&, const std::string&) override {}

  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    add(make(Kind::null, mark), mark.line, anchor);
  }

  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& text) override {
    const bool quoted = tag == "!" || tag == "tag:yaml.org,2002:str";
    const ValuePtr value = make(!quoted && is_null_word(text) ? Kind::null : Kind::scalar, mark);
    if (value->kind == Kind::scalar) value->text = text;
    value->quoted = quoted;
    count(*value, mark.line);
    add(value, mark.line, anchor);
  }

  void OnAlias(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    const auto found = anchors_.find(anchor);
    if (found == anchors_.end()) refuse(mark.line, "the alias refers to the section it stands in");
    const ValuePtr value = copy(*found->second, mark.line, static_cast<int>(frames_.size()));
    value->origin = origin(mark.line);
    add(value, mark.line, 0);
  }

  void OnSequenceStart(const YAML::Mark& mark, const std::string&, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    open(make(Kind::list, mark), mark.line, anchor);
  }
  void OnSequenceEnd() override { close(); }
  void OnMapStart(const YAML::Mark& mark, const std::string&, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    open(make(Kind::map, mark), mark.line, anchor);
  }
  void OnMapEnd() override { close(); }

 private:
  struct Frame {
    ValuePtr value;
    YAML::anchor_t anchor;
    int line;                             // where it begins
    std::optional<std::string> key = {};  // read, its value to come
    bool merging = false;                 // that key is <<
    int key_line = 0;
    std::vector<ValuePtr> merged = {};
  };

  ValuePtr make(Kind kind, const YAML::Mark& mark) const {
    auto value = std::make_shared<Value>();
    value->kind = kind;
    value->origin = origin(mark.line);
    return value;
  }

  void count(const Value& value, int line) {
    values_ += 1 + value.text.size() / kBytesPerValue;
    if (values_ > limits_.values)
      refuse(line, fmt::format("more than {} values, aliases counted as often as they are used", limits_.values));
  }

  void check_depth(int depth, int line) const {
    if (depth > limits_.depth) refuse(line, fmt::format("nested more than {} deep", limits_.depth));
  }

  ValuePtr copy(const Value& from, int line, int depth) {
    check_depth(depth, line);
    count(from, line);
    auto value = std::make_shared<Value>(from);
    for (ValuePtr& item : value->items) item = copy(*item, line, depth + 1);
    for (auto& [key, entry] : value->entries) entry = copy(*entry, line, depth + 1);
    return value;
  }

  void open(const ValuePtr& value, int line, YAML::anchor_t anchor) {
    check_depth(static_cast<int>(frames_.size()) + 1, line);
    count(*value, line);
    frames_.push_back({.value = value, .anchor = anchor, .line = line});
  }

  void close() {
    const Frame frame = std::move(frames_.back());
    frames_.pop_back();
    for (const ValuePtr& merged : frame.merged)
      for (const auto& [key, value] : merged->entries)
        if (!frame.value->find(key)) frame.value->set(key, value);
    add(frame.value, frame.line, frame.anchor);
  }

  void add(const ValuePtr& value, int line, YAML::anchor_t anchor) {
    if (anchor != 0) anchors_[anchor] = value;
    if (frames_.empty())
      root_ = value;
    else if (frames_.back().value->kind == Kind::list)
      frames_.back().value->items.push_back(value);
    else if (frames_.back().key)
      add_entry(frames_.back(), value, line);
    else
      begin_entry(frames_.back(), *value, line);
  }

  void begin_entry(Frame& frame, const Value& key, int line) const {
    if (key.kind != Kind::scalar || key.text.empty()) refuse(line, fmt::format("{} cannot be a key", describe(key)));
    if (key.text.size() > limits_.key_bytes)
      refuse(line, fmt::format("a key of {} bytes; at most {}", key.text.size(), limits_.key_bytes));
    if (frame.value->find(key.text))
      refuse(line, fmt::format("'{}' is given twice; first at {}", printable(key.text),
                               frame.value->find(key.text)->origin.text()));
    frame.key = key.text;
    frame.key_line = line;
    frame.merging = key.text == kMergeKey && !key.quoted;
  }

  void add_entry(Frame& frame, const ValuePtr& value, int line) const {
    value->origin = origin(frame.key_line);  // a reader looks for the key, which may stand lines before its section
    if (frame.merging)
      take_merged(frame, value, line);
    else
      frame.value->entries.emplace_back(*frame.key, value);
    frame.key.reset();
  }

  void take_merged(Frame& frame, const ValuePtr& value, int line) const {
    const std::vector<ValuePtr> list = value->kind == Kind::list ? value->items : std::vector{value};
    for (const ValuePtr& item : list) {
      if (item->kind != Kind::map) refuse(line, fmt::format("expected sections to merge, got {}", describe(*item)));
      frame.merged.push_back(item);
    }
  }

  std::string current_path() const {
    std::string path;
    for (const Frame& frame : frames_)
      if (frame.key)
        path = path_join(path, *frame.key);
      else if (frame.value->kind == Kind::list)
        path = path_join(path, std::to_string(frame.value->items.size()));
    return path;
  }

  std::shared_ptr<const std::string> source_;
  int first_line_;
  const Limits& limits_;
  ValuePtr root_ = std::make_shared<Value>();
  std::vector<Frame> frames_;
  std::map<YAML::anchor_t, ValuePtr> anchors_;
  size_t values_ = 0;
  int documents_ = 0;
};

/// What the parser itself would take for the end of the file or for another encoding.
void check_bytes(const std::string& text, const Builder& builder, const Limits& limits) {
  if (text.size() > limits.bytes)
    builder.refuse(0, fmt::format("{} bytes; a configuration has at most {}", text.size(), limits.bytes));
  const auto is_control = [](unsigned char c) {
    return (c < 0x20 && c != '\t' && c != '\n' && c != '\r') || c == 0x7f;
  };
  const auto at = std::find_if(text.begin(), text.end(), is_control);
  if (at == text.end()) return;
  const auto line = std::count(text.begin(), at, '\n');
  builder.refuse(static_cast<int>(line),
                 fmt::format("unexpected byte \\x{:02x}: not a text file", static_cast<unsigned char>(*at)));
}

/// The parser takes the end of the text for a closing quote. With a mark of the document's end behind it, it does not.
constexpr const char* kEnd = "\n...\n";

[[noreturn]] void refuse_syntax(const YAML::Exception& error, const std::string& text, const Builder& builder) {
  const auto lines = static_cast<int>(std::count(text.begin(), text.end(), '\n'));
  const std::string where = builder.origin(std::clamp(error.mark.line, 0, lines)).text();
  if (error.mark.line > lines) throw UsageError("{}: not valid YAML: the text ends within quotes or brackets", where);
  throw UsageError("{}: not valid YAML: {} (column {})", where, error.msg, error.mark.column + 1);
}

}  // namespace

ValuePtr parse_yaml(const std::string& text, const std::string& source, int first_line, const Limits& limits) {
  Builder builder(source, first_line, limits);
  check_bytes(text, builder, limits);
  std::istringstream stream(text + kEnd);
  try {
    YAML::Parser parser(stream);
    while (parser.HandleNextDocument(builder)) {
    }
  } catch (const YAML::Exception& error) {
    refuse_syntax(error, text, builder);
  }
  return builder.root();
}

}  // namespace trireme::config
