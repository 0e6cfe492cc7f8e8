// `trireme COMMAND …`: finds the command and turns errors into words and exit codes.
#include <fmt/core.h>

#include <algorithm>

#include "cli/commands.h"
#include "cli/run_main.h"
#include "trireme/core/error.h"
#include "trireme/core/text.h"

namespace trireme::cli {

const std::vector<Command>& commands() {
  static const std::vector<Command> table = {
      {"launch", "start a program as many processes, on one machine or several", launch},
      {"doctor", "check this machine, the way between machines (--ips a,b), or a running job (--job log)", doctor},
      {"top", "what the ranks of a running job do, and how fast", top},
      {"report", "one HTML file about a job: curves, time line, ranks, logs", report},
      {"tipc", "test a model from training on many machines to inference, as a text file says", tipc},
      {"help", "explain a command or a topic, with examples", help},
      {"version", "print the version", version},
  };
  return table;
}

const std::vector<External>& externals() {
  static const std::vector<External> table = {
      {"pack", "put the pictures of a list into one file, which is read faster"},
      {"train", "train an image classifier from a configuration (PaddleClas' files work)"},
      {"eval", "its accuracy with given weights"},
      {"export", "write it for inference: TorchScript, ONNX, and how to feed it"},
      {"infer", "its classes for pictures, and how fast it is"},
      {"serve", "its predictions over HTTP"},
  };
  return table;
}

namespace {

[[noreturn]] void throw_unknown(const std::string& name) {
  std::vector<std::string> names;
  for (const Command& command : commands()) names.emplace_back(command.name);
  for (const External& external : externals()) names.emplace_back(external.name);
  if (std::find(names.begin(), names.end(), name) != names.end())
    throw UsageError("trireme-{0} is neither beside trireme nor in PATH; it is built with libtorch (make build)", name);
  const auto near = closest(name, names);
  throw UsageError("there is no command \"{}\"{} (see: trireme help)", printable(name),
                   near ? fmt::format("; did you mean \"{}\"?", *near) : "");
}

int dispatch(const Words& words) {
  if (words.empty()) {
    fmt::print("{}", overview());
    return exit_code::kUsage;
  }
  std::string name = words[0];
  if (name == "-h" || name == "--help") name = "help";
  if (name == "-V" || name == "--version") name = "version";
  return run_command(name, {words.begin() + 1, words.end()});
}

}  // namespace

int run_command(const std::string& name, const Words& words) {
  for (const Command& command : commands())
    if (name == command.name) return command.run(words);
  run_external(name, words);
  throw_unknown(name);
}

}  // namespace trireme::cli

int main(int argc, char** argv) {
  return trireme::run_main([&] { return trireme::cli::dispatch({argv + 1, argv + argc}); });
}
