#include "trireme/launch/report/log_patterns.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <string_view>
#include <utility>

#include "trireme/core/text.h"

namespace trireme::launch {
namespace {

using Lines = std::vector<std::string>;
using Marks = std::vector<std::string_view>;

constexpr size_t kMaxWords = 300;
constexpr size_t kMaxEvidence = 8;

bool contains_any(std::string_view line, const Marks& marks) {
  return std::any_of(marks.begin(), marks.end(), [&](auto mark) { return line.find(mark) != line.npos; });
}

// The last line with one of the marks: what was written last is nearest to the end.
const std::string* last_with(const Lines& lines, const Marks& marks) {
  const auto found = std::find_if(lines.rbegin(), lines.rend(), [&](auto& line) { return contains_any(line, marks); });
  return found == lines.rend() ? nullptr : &*found;
}

// PyTorch puts "[rank0]: " in front of a traceback's lines.
std::string_view without_rank_prefix(std::string_view line) {
  if (!line.starts_with("[rank")) return line;
  const size_t end = line.find("]: ");
  return end != line.npos && end < 16 ? line.substr(end + 3) : line;
}

std::string shortened(std::string_view line) {
  const std::string text = printable(trim(without_rank_prefix(line)).substr(0, kMaxWords));
  return trim(without_rank_prefix(line)).size() > kMaxWords ? text + "…" : text;
}

// --- CUDA out of memory: "2.00 GiB", "56.000000MB"

// "1.531250GB of …" -> "1.53 GB"; nothing when no amount stands at the start.
std::optional<std::string> amount_at_start(std::string_view text) {
  const size_t digits = std::min(text.find_first_not_of("0123456789."), text.size());
  if (digits == 0) return std::nullopt;
  double number = 0;
  std::from_chars(text.data(), text.data() + digits, number);  // strtod follows the locale
  std::string_view rest = text.substr(digits);
  if (rest.starts_with(' ')) rest.remove_prefix(1);
  const auto letter = [](unsigned char c) { return std::isalpha(c) != 0; };
  const std::string_view unit(rest.begin(), std::find_if_not(rest.begin(), rest.end(), letter));
  return fmt::format("{:.2f} {}", number, unit);
}

std::optional<std::string> amount_after(std::string_view text, const Marks& marks) {
  for (const std::string_view mark : marks) {
    const size_t at = text.find(mark);
    if (at == text.npos) continue;
    if (const auto amount = amount_at_start(text.substr(at + mark.size()))) return amount;
  }
  return std::nullopt;
}

// The amount between the last "; " or "(" and the mark, as in "(GPU 0; 7.79 GiB total capacity; 13.06 MiB free; …".
std::optional<std::string> amount_before(std::string_view text, std::string_view mark) {
  const size_t at = text.find(mark);
  if (at == text.npos) return std::nullopt;
  const std::string_view head = text.substr(0, at);
  const size_t start = head.find_last_of(";(");
  return start == head.npos ? std::nullopt : amount_at_start(trim(head.substr(start + 1)));
}

std::string device_in(std::string_view text) {
  for (size_t at = text.find("GPU "); at != text.npos; at = text.find("GPU ", at + 4)) {
    const std::string_view rest = text.substr(at + 4);
    const std::string_view number = rest.substr(0, rest.find_first_not_of("0123456789"));
    if (!number.empty()) return fmt::format(" on GPU {}", number);
  }
  return "";
}

std::string memory_words(std::string_view line) {
  const auto asked = amount_after(line, {"Tried to allocate ", "Cannot allocate "});
  auto free = amount_after(line, {"of which ", "available memory is only ", "available memory is "});
  if (!free) free = amount_before(line, " free");
  auto total = amount_after(line, {"total capacity of ", "total capacty of "});
  if (!total) total = amount_before(line, " total capacity");
  std::string words = "CUDA out of memory" + device_in(line);
  std::vector<std::string> numbers;
  if (asked) numbers.push_back(*asked + " asked for");
  if (free) numbers.push_back(*free + " free" + (total ? " of " + *total : ""));
  if (total && !free) numbers.push_back(*total + " in total");
  return numbers.empty() ? words : words + ": " + join(numbers, ", ");
}

std::optional<Diagnosis> find_cuda_memory(const Lines& lines) {
  const std::string* line = last_with(lines, {"CUDA out of memory", "Out of memory error on GPU"});
  if (!line)
    line = last_with(lines, {"CUDA error: out of memory", "cudaErrorMemoryAllocation", "CUBLAS_STATUS_ALLOC_FAILED"});
  if (!line) return std::nullopt;
  return Diagnosis{.cause = "cuda_out_of_memory",
                   .words = memory_words(*line),
                   .advice =
                       "Use a smaller batch (or gradient accumulation), and look with nvidia-smi whether another "
                       "process holds memory of this GPU. GPUs are counted within CUDA_VISIBLE_DEVICES."};
}

// --- NCCL

Lines nccl_warnings(const Lines& lines) {
  Lines warnings;
  for (const std::string& line : lines)
    if (contains_any(line, {"NCCL WARN"})) warnings.push_back(shortened(line));
  if (warnings.size() > kMaxEvidence) warnings.erase(warnings.begin(), warnings.end() - kMaxEvidence);
  return warnings;
}

Diagnosis nccl_finding(const std::string& line, const Lines& lines) {
  return Diagnosis{.cause = "nccl",
                   .words = "NCCL error: " + shortened(line),
                   .advice =
                       "Start again with NCCL_DEBUG=INFO to see what NCCL tried; between machines, check "
                       "NCCL_SOCKET_IFNAME and the firewall.",
                   .evidence = nccl_warnings(lines),
                   .victim = contains_any(line, {"ncclRemoteError"})};
}

std::optional<Diagnosis> find_nccl(const Lines& lines) {
  const Marks named = {"ncclUnhandledCudaError", "ncclSystemError",  "ncclInternalError",
                       "ncclInvalidArgument",    "ncclInvalidUsage", "ncclRemoteError"};
  const std::string* line = last_with(lines, named);
  if (!line) line = last_with(lines, {"NCCL error", "NCCL Error"});
  if (!line) return std::nullopt;
  return nccl_finding(*line, lines);
}

// A warning alone is not a failure, but it explains one that nothing else explains.
std::optional<Diagnosis> find_nccl_warning(const Lines& lines) {
  const std::string* line = last_with(lines, {"NCCL WARN"});
  if (!line) return std::nullopt;
  return nccl_finding(*line, lines);
}

// --- one line says it all

struct Pattern {
  Marks marks;
  const char* cause;
  const char* words;
  const char* advice;
  bool victim = false;
};

const std::vector<Pattern>& patterns() {
  static const std::vector<Pattern> table = {
      {{"Address already in use", "EADDRINUSE"},
       "port_in_use",
       "a port is taken",
       "Another program, perhaps a left-over of an earlier job, holds the port: find it with `ss -ltnp`. Where no "
       "first port is given, workers get free ones."},
      {{"No space left on device", "Disk quota exceeded"},
       "disk_full",
       "no space left",
       "Look at `df -h` and `df -i` for the log and checkpoint folders, /tmp and /dev/shm."},
      {{"cannot open shared object file"},
       "missing_library",
       "a shared library is missing",
       "Look at `ldd PROGRAM` on this host; install the library or add its folder to LD_LIBRARY_PATH."},
      {{"pair.cc", "gloo/transport", "recvValue failed", "tcp_utils.cc"},
       "peer",
       "a connection to another rank broke",
       "The real culprit may be another rank: read the other ranks' output too.",
       true},
      {{"std::bad_alloc", "DefaultCPUAllocator: can't allocate", "MemoryError"},
       "out_of_memory",
       "the host's memory ran out",
       "Use fewer processes per node, a smaller batch or fewer loader threads, or raise the memory limit (ulimit -v, "
       "container, batch job)."},
  };
  return table;
}

std::optional<Diagnosis> find_pattern(const Lines& lines) {
  for (const Pattern& pattern : patterns())
    if (const std::string* line = last_with(lines, pattern.marks))
      return Diagnosis{.cause = pattern.cause,
                       .words = fmt::format("{}: {}", pattern.words, shortened(*line)),
                       .advice = pattern.advice,
                       .victim = pattern.victim};
  return std::nullopt;
}

// --- Python

bool is_exception_line(std::string_view line) {
  const std::string_view name = line.substr(0, line.find(':'));
  if (name.empty() || !std::isalpha(static_cast<unsigned char>(name[0]))) return false;
  const bool dotted =
      std::all_of(name.begin(), name.end(), [](unsigned char c) { return std::isalnum(c) || c == '.' || c == '_'; });
  return dotted && (name.ends_with("Error") || name.ends_with("Exception") || name.ends_with("Interrupt"));
}

// A traceback ends with the first line that is not indented: the exception.
std::optional<std::string> traceback_end(const Lines& lines) {
  std::optional<std::string> found;
  bool inside = false;
  for (const std::string& raw : lines) {
    const std::string_view line = without_rank_prefix(raw);
    if (line.starts_with("Traceback (most recent call last)")) {
      inside = true;
    } else if (inside && !trim(line).empty() && !line.starts_with(' ')) {
      found = shortened(line);
      inside = false;
    }
  }
  return found;
}

// When the traceback's start was further up than the lines go, an exception at the start of a line must do.
std::optional<std::string> python_exception(const Lines& lines) {
  if (auto found = traceback_end(lines)) return found;
  for (auto line = lines.rbegin(); line != lines.rend(); ++line)
    if (is_exception_line(without_rank_prefix(*line))) return shortened(*line);
  return std::nullopt;
}

std::optional<Diagnosis> find_python(const Lines& lines) {
  const auto exception = python_exception(lines);
  if (!exception) return std::nullopt;
  const bool import = exception->starts_with("ModuleNotFoundError") || exception->starts_with("ImportError");
  if (!import) return Diagnosis{.cause = "python_error", .words = *exception, .advice = ""};
  return Diagnosis{.cause = "import_error",
                   .words = *exception,
                   .advice =
                       "Is the right Python environment active on this host (which python3), and is the module "
                       "installed there or found through PYTHONPATH?"};
}

// --- C++

std::string exception_type(std::string_view line) {
  const size_t start = line.find('\'');
  const size_t end = line.rfind('\'');
  return start < end ? "uncaught " + printable(line.substr(start + 1, end - start - 1)) : shortened(line);
}

std::optional<Diagnosis> find_cpp(const Lines& lines) {
  const auto is_terminate = [](const std::string& line) { return contains_any(line, {"terminate called "}); };
  const auto found = std::find_if(lines.rbegin(), lines.rend(), is_terminate);
  if (found == lines.rend()) return std::nullopt;
  std::string words = exception_type(*found);
  for (auto line = found.base(); line != lines.end(); ++line) {
    const size_t what = line->find("what():");
    if (what == line->npos) continue;
    words += ": " + shortened(std::string_view(*line).substr(what + 7));
    break;
  }
  return Diagnosis{.cause = "cpp_exception", .words = std::move(words), .advice = ""};
}

}  // namespace

std::optional<Diagnosis> find_in_log(const Lines& lines) {
  // From the most special message to the most general: an uncaught exception may carry any of the others.
  for (const auto find : {find_cuda_memory, find_nccl, find_pattern, find_python, find_cpp, find_nccl_warning})
    if (auto finding = find(lines)) return finding;
  return std::nullopt;
}

}  // namespace trireme::launch
