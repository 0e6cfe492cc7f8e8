#include "trireme/launch/nodes/ssh.h"

#include <fmt/ranges.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <filesystem>

#include "trireme/core/env.h"
#include "trireme/core/error.h"
#include "trireme/core/fd.h"
#include "trireme/core/log.h"
#include "trireme/core/quiet_thread.h"
#include "trireme/core/shell.h"
#include "trireme/core/text.h"
#include "trireme/launch/job_state.h"
#include "trireme/launch/live_line.h"
#include "trireme/launch/machine/program.h"
#include "trireme/launch/membership.h"
#include "trireme/launch/report/diagnosis.h"
#include "trireme/launch/signal_watch.h"
#include "trireme/proc/console.h"
#include "trireme/proc/process_set.h"
#include "trireme/proc/signals.h"

namespace trireme::launch {
namespace {

constexpr int kSshFailed = 255;

// SIGTERM is first: it stands for all others.
constexpr std::pair<int, char> kSignalBytes[] = {{SIGTERM, 'T'}, {SIGINT, 'I'},  {SIGUSR1, 'U'}, {SIGUSR2, 'V'},
                                                 {SIGQUIT, 'Q'}, {SIGSTOP, 'S'}, {SIGCONT, 'C'}};

const char* bind_name(Bind bind) {
  return bind == Bind::core ? "core" : bind == Bind::numa ? "numa" : "none";
}

std::string tee_text(const Request& request) {
  if (request.tee_all) return "all";
  return request.tee.empty() ? "none" : fmt::format("{}", fmt::join(request.tee, ","));
}

std::string seconds_text(std::chrono::milliseconds time) {
  return fmt::format("{}ms", time.count());
}

// Every option that means the same on all hosts.
std::vector<std::string> common_options(const Request& request) {
  std::vector<std::string> options{"--job_id",
                                   request.job_id,
                                   "--log_dir",
                                   request.log_dir,
                                   "--tee",
                                   tee_text(request),
                                   "--grace",
                                   seconds_text(request.grace),
                                   "--join_timeout",
                                   seconds_text(request.join_timeout),
                                   "--link_timeout",
                                   seconds_text(request.link_timeout),
                                   "--hang_timeout",
                                   seconds_text(request.hang_timeout),
                                   "--max_restart",
                                   std::to_string(request.max_restart),
                                   "--elastic_timeout",
                                   seconds_text(request.elastic_timeout),
                                   "--bind",
                                   bind_name(request.bind)};
  const auto add = [&](std::initializer_list<std::string> words) { options.insert(options.end(), words); };
  if (request.devices) add({"--gpus", join(*request.devices, ",")});
  if (request.start_port) add({"--start_port", std::to_string(*request.start_port)});
  if (request.min_nodes > 0) add({"--nnodes", request.nodes_text()});
  if (request.elastic_level) add({"--elastic_level", std::to_string(*request.elastic_level)});
  if (request.progress != Progress::automatic) add({"--progress", request.progress == Progress::on ? "on" : "off"});
  if (request.check_only) add({"--check_only"});
  if (request.log_overwrite) add({"--log_overwrite"});
  if (request.no_python) add({"--no_python"});
  if (request.dashboard) add({"--dashboard", to_string(*request.dashboard)});
  if (request.trace) add({"--trace", fmt::format("steps={}:{}", request.trace->first, request.trace->last)});
  add({"--log_level", to_string(request.log_level)});
  for (const auto& [name, value] : request.environment) add({"--env", name + "=" + value});
  for (const auto& [rank, command] : request.wrap) add({"--wrap", fmt::format("{}:{}", rank, command)});
  return options;
}

bool is_this_machine(const std::string& host) {
  return interface_with(resolve_ip(host)).has_value();
}

std::vector<std::string> ssh_command(const std::string& host, const std::string& remote) {
  const std::string path = env::get("PATH").value_or("/usr/bin:/bin");
  std::vector<std::string> words;
  for (const std::string& word :
       split(env::get_nonempty("TRIREME_SSH").value_or("ssh -o BatchMode=yes -o ConnectTimeout=10"), ' '))
    if (!word.empty()) words.push_back(word);
  words.push_back(host);
  words.push_back(remote);
  return resolve_program(words, path, true);
}

// This machine needs no ssh to itself.
std::vector<std::string> command_for(const std::string& host, const std::string& line) {
  if (is_this_machine(host)) return {"/bin/sh", "-c", line};
  return ssh_command(host, line);
}

class Terminal {
 public:
  explicit Terminal(const Request& request)
      : request_(with_progress(request)),
        hosts_(request.hosts),
        // The remote launchers have their own grace; this one only steps in when they do not answer any more.
        state_(static_cast<int>(hosts_.size()), {.grace = request.grace + Millis(4000), .settle = Millis(1500)}) {}

  int run() {
    start();
    while (!state_.all_finished() && !state_.given_up(Clock::now())) turn();
    line_.end();
    console_.drain(Deadline::in(std::chrono::seconds(1)));
    if (state_.interrupted() != 0) return 128 + state_.interrupted();
    return code_;
  }

 private:
  // The other launchers have no terminal, and this one decides.
  static Request with_progress(Request request) {
    const bool shows = LiveLine::is_wanted(request, proc::Console().on_terminal());
    request.progress = shows ? Progress::on : Progress::off;
    return request;
  }

  void start() {
    const Token token = configured_token().value_or(Token::random());
    const std::string program = std::filesystem::read_symlink("/proc/self/exe").string();
    const std::string directory = std::filesystem::current_path().string();
    for (size_t i = 0; i < hosts_.size(); ++i) {
      FdPair pipe = make_pipe();
      write_all(pipe.second.get(), to_hex(token.bytes()) + "\n");
      set_.start({.command = command_for(hosts_[i].host, remote_command_line(request_, i, program, directory)),
                  .environment = own_environment(),
                  .input = pipe.first.get()});
      inputs_.push_back(std::move(pipe.second));
    }
  }

  static std::vector<std::string> own_environment() {
    std::vector<std::string> result;
    for (const auto& [name, value] : env::all()) result.push_back(name + "=" + value);
    return result;
  }

  void turn() {
    const Deadline next = earlier(state_.next(), Deadline::in(Millis(console_.flush() ? 1000 : 20)));
    for (const proc::Event& event : set_.wait(next, signals_.open())) handle(event);
    while (const auto signal = signals_.take()) handle_signal(*signal);
    if (over_ && state_.culprit(Clock::now())) stop_remotes();
    while (const auto signal = state_.signal_due(Clock::now()))
      if (signal == SIGKILL) set_.signal_all(SIGKILL);  // the gentle signal went through the pipes
  }

  void handle(const proc::Event& event) {
    const auto host = static_cast<size_t>(event.process);
    if (event.kind == proc::Event::Kind::output) {
      answered_[host] = true;
      const bool to_stderr = event.stream == proc::Stream::err;
      const std::string prefix = host == 0 ? "" : hosts_[host].host + ": ";
      const std::string bytes = to_stderr ? without_progress(host, event.bytes) : event.bytes;
      console_.write(event.process * 2 + (to_stderr ? 1 : 0), to_stderr, prefix, bytes);
    } else if (event.kind == proc::Event::Kind::exited) {
      note_exit(host, event);
    } else if (event.kind == proc::Event::Kind::finished) {
      state_.finished(event.process);
    }
  }

  // Node 0, which is always the first host, knows how far all ranks are, and this terminal shows it; the other
  // launchers relay only the end, an empty line.
  std::string without_progress(size_t host, std::string_view bytes) {
    return relayed_[host].take_out(bytes, [this, host](const std::string& text) {
      if (host == 0 || !text.empty()) line_.show(printable(text));
    });
  }

  void note_exit(size_t host, const proc::Event& event) {
    const bool ssh_failed = event.status.code == kSshFailed;
    const int code = ssh_failed ? exit_code::kPeer : event.status.shell_code();
    state_.exited(event.process, {.success = code == 0, .when = event.when});
    if (ssh_failed)
      console_.say(fmt::format("trireme: error: ssh to {} failed; check that `ssh {} true` works without a password",
                               hosts_[host].host, hosts_[host].host));
    const bool never_began = ssh_failed && !answered_[host];
    if (elastic_ && host != 0 && !never_began)
      return;  // the others may go on without it; node 0 knows how the job ends
    over_ = true;
    if (code_ == 0) code_ = code;
  }

  void handle_signal(int signal) {
    if (proc::asks_to_end(signal)) return interrupt(signal);
    if (signal != SIGTSTP) return send(signal);
    send(SIGSTOP);
    console_.show_status("");
    proc::stop_this_process();
    send(SIGCONT);
  }

  void send(int signal) {
    for (const UniqueFd& input : inputs_) write_all(input.get(), std::string(1, byte_of_signal(signal)));
  }

  void interrupt(int signal) {
    if (!state_.interrupt(signal, Clock::now())) return;
    if (request_.log_level <= LogLevel::info)
      console_.say(fmt::format("trireme: {}: passed on to all {} hosts; a second signal kills them",
                               signal_name(signal), hosts_.size()));
    send(signal);
    for (size_t i = 0; i < hosts_.size(); ++i)
      if (!answered_[i]) set_.signal(static_cast<int>(i), SIGTERM);  // still connecting: the pipe is not read yet
  }

  void stop_remotes() {
    inputs_.clear();
    state_.stop(SIGTERM, Clock::now());
  }

  const Request request_;
  const std::vector<HostSlots>& hosts_;
  const bool elastic_ = elastic_rules(request_).on;
  bool over_ = false;  // a launcher has ended whose end is the job's
  proc::SignalGate signals_{launcher_signals()};
  proc::Console console_;
  LiveLine line_{console_, request_};
  std::vector<RelayedLine> relayed_ = std::vector<RelayedLine>(hosts_.size());
  JobState state_;
  proc::ProcessSet set_;
  std::vector<UniqueFd> inputs_;
  std::vector<bool> answered_ = std::vector<bool>(hosts_.size());  // something was heard from the host
  int code_ = 0;
};

}  // namespace

std::string remote_command_line(const Request& request, size_t index, const std::string& program,
                                const std::string& directory) {
  const std::vector<HostSlots>& hosts = request.hosts;
  std::vector<std::string> names;
  for (const HostSlots& host : hosts) names.push_back(host.host);
  std::vector<std::string> words{program,          "launch", "--ssh_child",  "--ips",
                                 join(names, ","), "--host", names.at(index)};
  const std::string processes =
      hosts[index].slots > 0 ? std::to_string(hosts[index].slots) : request.processes.value_or("");
  if (!processes.empty()) words.insert(words.end(), {"--nproc_per_node", processes});
  const auto common = common_options(request);
  words.insert(words.end(), common.begin(), common.end());
  words.push_back("--");
  words.insert(words.end(), request.command.begin(), request.command.end());
  return fmt::format("cd {} && exec {}", shell_word(directory), show_words(words));
}

char byte_of_signal(int signal) {
  for (const auto& [number, byte] : kSignalBytes)
    if (number == signal) return byte;
  return kSignalBytes[0].second;
}

int signal_of_byte(char wanted) {
  for (const auto& [number, byte] : kSignalBytes)
    if (byte == wanted) return number;
  return kSignalBytes[0].first;
}

int run_over_ssh(const Request& request) {
  return Terminal(request).run();
}

TerminalWatch::TerminalWatch(int end_of_input) {
  if (end_of_input < 0) return;
  stop_ = make_pipe();
  thread_ = start_quiet_thread("the terminal watch", [end_of_input, stop = stop_.first.get()] {
    for (;;) {
      pollfd entries[2] = {{end_of_input, POLLIN, 0}, {stop, POLLIN, 0}};
      if (::poll(entries, 2, -1) < 0) continue;
      if (entries[1].revents) return;
      char byte = 0;
      const int signal = ::read(end_of_input, &byte, 1) == 1 ? signal_of_byte(byte) : SIGTERM;
      if (signal == SIGSTOP || signal == SIGCONT) continue;  // for workers, and there is none yet
      ::kill(::getpid(), signal);
      if (proc::asks_to_end(signal)) return;
    }
  });
}

TerminalWatch::~TerminalWatch() {
  if (!thread_.joinable()) return;
  stop_.second.reset();
  thread_.join();
}

SshChild SshChild::from_standard_input() {
  const Deadline deadline = Deadline::in(std::chrono::seconds(10));
  std::string line;
  for (char byte = 0; byte != '\n';) {
    if (!wait_readable(0, deadline)) throw PeerError("--ssh_child: no token on standard input within 10 s");
    if (::read(0, &byte, 1) != 1)
      throw PeerError("--ssh_child: standard input ended before the token; this option is for --ssh's own use");
    if (byte != '\n') line += byte;
    if (line.size() > 2 * Token::kSize) throw PeerError("--ssh_child: the first line of standard input is not a token");
  }
  return {.token = Token::from_bytes(from_hex(line)), .end_of_input = 0};
}

}  // namespace trireme::launch
