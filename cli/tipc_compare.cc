// `trireme tipc compare`: every log against the expected file of its precision.
#include <fmt/core.h>
#include <glob.h>

#include <set>

#include "cli/commands.h"
#include "cli/tipc_options.h"
#include "trireme/core/error.h"
#include "trireme/core/file.h"
#include "trireme/core/text.h"

namespace trireme::cli {
namespace {

struct GlobResult : glob_t {
  explicit GlobResult(const std::string& pattern) : glob_t{}, code(::glob(pattern.c_str(), 0, nullptr, this)) {}
  ~GlobResult() { ::globfree(this); }
  GlobResult(const GlobResult&) = delete;
  GlobResult& operator=(const GlobResult&) = delete;
  int code;
};

Words files_of(const char* option, const Words& patterns) {
  Words files;
  for (const std::string& pattern : patterns) {
    const GlobResult found(pattern);
    if (found.code != 0) throw UsageError("{} {}: no such file", option, printable(pattern));
    files.insert(files.end(), found.gl_pathv, found.gl_pathv + found.gl_pathc);
  }
  if (files.empty()) throw UsageError("compare needs {} FILES (see: trireme tipc compare --help)", option);
  return files;
}

tipc::AnswerFile answers_of(const std::string& file) {
  const auto text = read_file(file);
  if (!text) throw UsageError("cannot read {}", printable(file));
  tipc::AnswerFile answers = tipc::parse_answers(*text, printable(file));
  if (answers.answers.empty() && answers.problems.empty())
    throw UsageError("{} has no answers: lines like image<TAB>json", answers.file);
  return answers;
}

/// Empty when there is none.
std::string file_for(const std::string& precision, const Words& files) {
  std::string only;
  for (const std::string& file : files) {
    if (tipc::precision_in_name(file) != precision) continue;
    if (!only.empty())
      throw UsageError("--gt: {} and {} are both {}; give one of them", printable(only), printable(file),
                       precision.empty() ? "without a precision in their names" : "for " + precision);
    only = file;
  }
  return only;
}

/// The file for that precision, else that for fp32, else one without a precision in its name.
std::string expected_for(const std::string& log, const Words& files) {
  const std::string precision = tipc::precision_in_name(log);
  for (const std::string& wanted : {precision, std::string("fp32"), std::string()})
    if (std::string file = file_for(wanted, files); !file.empty()) return file;
  throw UsageError("--gt: {} needs a file for {}fp32, or one without a precision in its name, and there is only {}",
                   printable(log), precision.empty() || precision == "fp32" ? "" : precision + " or ",
                   printable(join(files, ", ")));
}

void print_note(const std::string& note) {
  if (!note.empty()) fmt::print("note: {}\n", note);
}

/// A step that ran no inference leaves no log behind, which nobody would miss.
bool all_used(const Words& gts, const std::set<std::string>& used) {
  for (const std::string& gt : gts)
    if (!used.contains(gt))
      fmt::print("{}: no log was compared with it{}; is the log for it missing?\n", printable(gt),
                 tipc::precision_in_name(gt).empty() ? "" : ", as none has its precision in its name");
  return used.size() == std::set<std::string>(gts.begin(), gts.end()).size();
}

bool compare_file(const std::string& gt, const std::string& log, const TipcOptions& options) {
  const tipc::Tolerance& tolerance = options.tolerance;
  const tipc::AnswerFile expected = answers_of(gt), found = answers_of(log);
  tipc::Comparison result = compare(expected, found, tolerance);
  fmt::print("{}: {} pictures, {} numbers compared with {}\n", found.file, result.pictures, result.numbers,
             expected.file);
  for (const tipc::AnswerFile* file : {&expected, &found}) {
    print_note(rounding_note(*file, tolerance));
    const std::string sameness = sameness_note(*file, tolerance);
    if (!options.distinct)
      print_note(sameness);
    else if (!sameness.empty())
      result.wrong.push_back(sameness);
  }
  if (result.same()) {
    fmt::print("Assert allclose passed! The results of {} and {} are consistent!\n", found.file, expected.file);
    return true;
  }
  fmt::print("The results of {} and {} are inconsistent!\n", found.file, expected.file);
  for (const std::string& line : result.wrong) fmt::print("  {}\n", line);
  return false;
}

}  // namespace

int tipc_compare(const TipcOptions& options) {
  if (!options.positional.empty())
    throw UsageError("compare takes no '{}'; quote a pattern: --log 'cpp_infer_*.log'",
                     printable(options.positional[0]));
  const Words gts = files_of("--gt", options.gt);
  std::set<std::string> used;
  bool same = true;
  for (const std::string& log : files_of("--log", options.log)) {
    if (!options.precision.empty() && tipc::precision_in_name(log) != options.precision) continue;
    const std::string gt = expected_for(log, gts);
    used.insert(gt);
    same &= compare_file(gt, log, options);
  }
  if (used.empty()) throw UsageError("--precision {}: no log has it in its name", options.precision);
  if (options.precision.empty()) same &= all_used(gts, used);
  return same ? 0 : 1;
}

}  // namespace trireme::cli
