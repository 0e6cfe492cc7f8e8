#include "apps/program.h"

#include <fmt/chrono.h>
#include <fmt/core.h>
#include <malloc.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <memory>
#include <optional>

#include "cli/run_main.h"
#include "trireme/core/cpu_probe.h"
#include "trireme/core/error.h"
#include "trireme/core/log.h"
#include "trireme/core/parallel_env.h"
#include "trireme/core/text.h"
#include "trireme/train/trainer/memory.h"
#include "trireme/train/trainer/saver.h"

namespace trireme::apps {
namespace {

using Words = std::vector<std::string>;

// --- the command line

bool is_override(const std::string& word) {
  return !word.starts_with("-") && word.find('=') != std::string::npos;
}

/// The value of an option: behind '=' or the next word, which is then taken.
std::string value_of(const Words& words, size_t& at) {
  const std::string& word = words[at];
  const size_t equals = word.find('=');
  if (word.starts_with("--") && equals != std::string::npos) return word.substr(equals + 1);
  if (at + 1 >= words.size()) throw UsageError("{} needs a value (see --help)", word);
  return words[++at];
}

void read_overrides(const Words& words, size_t& at, Options& options) {
  options.overrides.push_back(value_of(words, at));
  while (at + 1 < words.size() && is_override(words[at + 1])) options.overrides.push_back(words[++at]);
}

/// Nothing: help was asked for.
std::optional<Options> parse(const Program& program, const Words& words) {
  Options options;
  for (size_t at = 0; at < words.size(); ++at) {
    const std::string name = words[at].substr(0, words[at].starts_with("--") ? words[at].find('=') : std::string::npos);
    if (name == "-h" || name == "--help") return std::nullopt;
    if (name == "-c" || name == "--config")
      options.config = value_of(words, at);
    else if (name == "-o" || name == "--override")
      read_overrides(words, at, options);
    else if (name == "--resume" && program.trains)
      options.resume = value_of(words, at);
    else
      throw UsageError("trireme {} has no option '{}' (see: trireme {} --help)", program.name, printable(words[at]),
                       program.name);
  }
  options.words = words;
  if (options.config.empty()) throw UsageError("which configuration? trireme {} -c CONFIG.yaml", program.name);
  return options;
}

// --- the log

const char* level_name(LogLevel level) {
  switch (level) {
    case LogLevel::debug:
      return "DEBUG";
    case LogLevel::warning:
      return "WARNING";
    case LogLevel::error:
      return "ERROR";
    default:
      return "INFO";
  }
}

/// To standard output and, if it is to be kept, a file, once there is one. The calls are serialised by core's log.
class ProgramLog {
 public:
  explicit ProgramLog(bool kept) : kept_(kept) {
    set_log_sink([this](LogLevel level, std::string_view text) { write(level, text); });
  }
  ~ProgramLog() {
    set_log_sink({});
    if (file_ != nullptr) std::fclose(file_);
  }
  ProgramLog(const ProgramLog&) = delete;
  ProgramLog& operator=(const ProgramLog&) = delete;

  void open(const std::filesystem::path& path) {
    std::error_code failed;
    std::filesystem::create_directories(path.parent_path(), failed);
    if (failed) throw SystemError(failed.value(), "cannot make the folder {}", path.parent_path().string());
    file_ = std::fopen(path.c_str(), "a");
    if (file_ == nullptr) throw SystemError(errno, "cannot write {}", path.string());
    std::fputs(before_.c_str(), file_);
    before_.clear();
  }

 private:
  void write(LogLevel level, std::string_view text) {
    const std::time_t now = std::time(nullptr);
    std::tm local{};
    ::localtime_r(&now, &local);
    const std::string line = fmt::format("[{:%Y/%m/%d %H:%M:%S}] trireme {}: {}\n", local, level_name(level), text);
    std::fputs(line.c_str(), stdout);
    std::fflush(stdout);
    if (!kept_) return;
    if (file_ == nullptr) {
      before_ += line;
      return;
    }
    std::fputs(line.c_str(), file_);
    std::fflush(file_);
  }

  const bool kept_;
  std::FILE* file_ = nullptr;
  std::string before_;  // what was said before there was a file
};

// --- the process

/// Before torch starts. glibc would give every large tensor back to the kernel, which costs a third of a CPU's
/// training; and oneDNN would believe a CPU that promises matrix instructions it does not have.
void prepare_process() {
  ::mallopt(M_MMAP_MAX, 0);
  ::mallopt(M_TRIM_THRESHOLD, INT_MAX);
  ::mallopt(M_TOP_PAD, 256 << 20);
  avoid_broken_amx();
}

bool logs(const config::Global& global, int rank) {
  return std::find(global.log_ranks.begin(), global.log_ranks.end(), rank) != global.log_ranks.end();
}

int run_program(const Program& program, const Words& words) {
  const std::optional<Options> options = parse(program, words);
  if (!options) {
    fmt::print("{}", program.help);
    return 0;
  }
  prepare_process();
  const int rank = get_rank();
  const bool kept = program.trains && rank == 0;
  ProgramLog log(kept);
  if (rank != 0) set_log_level(LogLevel::error);  // what is wrong with the file is told once
  const config::TrainConfig config = config::load(options->config, options->overrides);
  set_log_level(logs(config.global, rank) ? LogLevel::info : LogLevel::warning);
  if (kept) log.open(trainer::output_folder(config) / fmt::format("{}.log", program.name));
  try {
    return program.run(*options, config);
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    if (!trainer::out_of_memory(error)) throw;
    throw UsageError("{}",
                     program.reads_batches ? trainer::memory_advice(config, error) : trainer::memory_shortage(error));
  }
}

}  // namespace

int run(const Program& program, int argc, char** argv) {
  return run_main([&] { return run_program(program, {argv + 1, argv + argc}); });
}

}  // namespace trireme::apps
