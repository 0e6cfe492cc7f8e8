#include "apps/program.h"

#include <fmt/chrono.h>
#include <fmt/core.h>
#include <malloc.h>

#include <algorithm>
#include <atomic>
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
#include "trireme/core/option_help.h"
#include "trireme/core/options.h"
#include "trireme/core/parallel_env.h"
#include "trireme/train/trainer/memory.h"
#include "trireme/train/trainer/saver.h"

namespace trireme::apps {
namespace {

using Words = std::vector<std::string>;

// --- the command line

CommandSyntax syntax_of(const Program& program, Options& options) {
  const auto add_override = [&](const Given& given) { options.overrides.push_back(given.text); };
  CommandSyntax syntax{
      .command = fmt::format("trireme {}", program.name),
      .usage = fmt::format("-c CONFIG.yaml [-o KEY.SUB=VALUE...]{}", program.trains ? " [--resume auto|FOLDER]" : ""),
      .about = program.about,
      .notes = program.notes,
      .operand_advice = "changes of the configuration stand behind -o, as KEY=VALUE",
      .options = {{{"--config", "-c"}, "FILE", "the configuration; required", text_into(options.config)},
                  {{"--override", "-o"},
                   "KEY=VALUE...",
                   "changes of the configuration; may be repeated",
                   add_override,
                   Takes::assignments}}};
  if (program.trains)
    syntax.options.push_back({{"--resume"},
                              "auto|FOLDER",
                              "continue from this checkpoint; auto: from the newest one of the output folder, or start "
                              "when there is none",
                              text_into(options.resume)});
  return syntax;
}

/// Nothing: the help was printed.
std::optional<Options> parse(const Program& program, const Words& words) {
  Options options;
  const CommandSyntax syntax = syntax_of(program, options);
  if (const auto topic = parse_command_line(syntax, words).help) {
    fmt::print("{}", help_for(syntax, *topic));
    return std::nullopt;
  }
  if (options.config.empty()) throw UsageError("which configuration? trireme {} -c CONFIG.yaml", program.name);
  options.words = words;
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

/// To standard output what show() says and, if it is to be kept, to a file everything from `info` on, once there is one.
/// The calls are serialised by core's log.
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

  void show(LogLevel level) {
    shown_ = level;
    set_log_level(kept_ ? std::min(level, LogLevel::info) : level);
  }

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
    if (level >= shown_) {
      std::fputs(line.c_str(), stdout);
      std::fflush(stdout);
    }
    if (!kept_) return;
    if (file_ == nullptr) {
      before_ += line;
      return;
    }
    std::fputs(line.c_str(), file_);
    std::fflush(file_);
  }

  const bool kept_;
  std::atomic<LogLevel> shown_{LogLevel::info};
  std::FILE* file_ = nullptr;
  std::string before_;  // logged before the file was open
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
  if (!options) return 0;
  prepare_process();
  const int rank = get_rank();
  const bool kept = program.trains && rank == 0;
  ProgramLog log(kept);
  log.show(log_level_or(rank == 0 ? LogLevel::info : LogLevel::error));  // one rank reports what is wrong with the file
  const config::TrainConfig config = config::load(options->config, options->overrides);
  log.show(log_level_or(logs(config.global, rank) ? LogLevel::info : LogLevel::warning));
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
