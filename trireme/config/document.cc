#include "trireme/config/document.h"

#include <algorithm>
#include <cerrno>

#include "trireme/config/parse.h"
#include "trireme/core/error.h"
#include "trireme/core/file.h"
#include "trireme/core/shell.h"
#include "trireme/core/text.h"

namespace trireme::config {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxBases = 10;
constexpr size_t kShownFiles = 20;
constexpr const char* kBase = "base";

/// "a.yaml, b.yaml": what can be meant by naming a folder.
std::string files_in(const fs::path& folder) {
  std::error_code ignored;
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder, ignored)) {
    const std::string extension = entry.path().extension().string();
    if (extension == ".yaml" || extension == ".yml") names.push_back(printable(entry.path().filename().string()));
  }
  std::sort(names.begin(), names.end());
  return names.empty() ? "it has no .yaml file" : fmt::format("name a file in it: {}", join_some(names, kShownFiles));
}

/// What to do about a file that cannot be read because of `number`, an errno.
std::string next_step(const fs::path& path, int number) {
  if (number != ENOENT) return fmt::format("see `ls -ld {}`", shell_word(path.string()));
  std::error_code ignored;
  const fs::path folder = path.has_parent_path() ? path.parent_path() : fs::path(".");
  if (!fs::is_directory(folder, ignored))
    return fmt::format("there is no folder {}", printable(fs::absolute(folder, ignored).string()));
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder, ignored)) names.push_back(entry.path().filename().string());
  const auto nearest = closest(path.filename().string(), names);
  if (nearest) return fmt::format("did you mean {}?", (path.parent_path() / *nearest).string());
  return fmt::format("of the folder {}: {}", printable(folder.string()), files_in(folder));
}

/// `named_by` is where the file's name stands, empty for the one the user gave.
std::string read_text(const fs::path& path, const std::string& named_by) {
  const std::string who = named_by.empty() ? "" : named_by + ": ";
  std::error_code ignored;
  if (fs::is_directory(path, ignored))
    throw UsageError("{}the configuration {} is a folder; {}", who, printable(path.string()), files_in(path));
  const auto text = read_file(path, Limits{}.bytes);
  if (const int number = errno; !text)
    throw UsageError("{}cannot read the configuration {}: {}; {}", who, printable(path.string()), errno_text(number),
                     next_step(path, number));
  return *text;
}

ValuePtr parse_section(const std::string& text, const std::string& source) {
  ValuePtr root = parse_yaml(text, source);
  if (root->kind == Kind::null) throw UsageError("{}: the configuration is empty", source);
  if (root->kind != Kind::map)
    throw UsageError("{}: expected sections such as 'Global:', got {}", root->origin.text(), describe(*root));
  root->origin.line = 1;
  return root;
}

ValuePtr load_with_bases(const fs::path& path, const std::string& named_by, std::vector<std::string>& chain) {
  std::error_code unknown;  // reading the file tells why
  const fs::path resolved = fs::weakly_canonical(path, unknown);
  const std::string canonical = unknown ? path.string() : resolved.string();
  if (std::find(chain.begin(), chain.end(), canonical) != chain.end())
    throw UsageError("{}: {}: a cycle: {} is one of the files that build upon it", named_by, kBase, path.string());
  if (chain.size() > kMaxBases) throw UsageError("{}: {}: more than {} files in a row", named_by, kBase, kMaxBases);
  chain.push_back(canonical);
  ValuePtr root = parse_section(read_text(path, named_by), path.string());
  const ValuePtr base = root->find(kBase);
  if (!base) return root;
  const std::string where = base->origin.text();
  const auto name = Node(base, kBase).as<std::string>();
  root->erase(kBase);
  return merge(load_with_bases(path.parent_path() / name, where, chain), root);
}

Node finish(const ValuePtr& root, const std::vector<std::string>& overrides) {
  for (const std::string& option : overrides) apply_override(*root, option);
  return {root, ""};
}

}  // namespace

Node load_document(const fs::path& path, const std::vector<std::string>& overrides) {
  std::vector<std::string> chain;
  return finish(load_with_bases(path, "", chain), overrides);
}

Node parse_document(const std::string& text, const std::string& source, const std::vector<std::string>& overrides) {
  const ValuePtr root = parse_section(text, source);
  if (const ValuePtr base = root->find(kBase)) Node(base, kBase).fail("only a file can build upon another");
  return finish(root, overrides);
}

}  // namespace trireme::config
