#include "trireme/comm/engine/liveness.h"

#include <fmt/core.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <cerrno>

#include "trireme/core/error.h"
#include "trireme/core/text.h"

namespace trireme::comm {
namespace {

constexpr int kQueue = 4096;
constexpr int kAcceptDelay = 30;  // seconds; of TCP_DEFER_ACCEPT
constexpr size_t kAtOnce = 256;   // descriptors, of which a process may have no more than 1024
constexpr size_t kMaxNamed = 8;

Life judge(int error) {
  if (error == 0) return Life::alive;
  return error == ECONNREFUSED || error == ECONNRESET ? Life::dead : Life::unreachable;
}

int pending_error(int socket) {
  int error = 0;
  socklen_t length = sizeof error;
  return ::getsockopt(socket, SOL_SOCKET, SO_ERROR, &error, &length) == 0 ? error : errno;
}

// Goes away by a reset: it leaves nothing waiting on either side.
UniqueFd make_probe(int family) {
  UniqueFd socket(::socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket) throw SystemError(errno, "cannot make a socket to ask whether a process lives");
  const linger at_once{.l_onoff = 1, .l_linger = 0};
  ::setsockopt(socket.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
  return socket;
}

// One question under way.
struct Question {
  size_t suspect;
  UniqueFd socket;
};

class Inquiry {
 public:
  Inquiry(std::span<const Suspect> suspects, Deadline deadline)
      : suspects_(suspects), deadline_(deadline), answers_(suspects.size()) {}

  std::vector<std::optional<Life>> hold() {
    while (next_ < suspects_.size() || !open_.empty()) {
      while (next_ < suspects_.size() && open_.size() < kAtOnce && ask(next_)) ++next_;
      if (open_.empty()) break;  // not even one descriptor
      if (!hear()) break;
    }
    for (const Question& question : open_) answers_[question.suspect] = Life::unreachable;
    return std::move(answers_);
  }

 private:
  // False: no descriptor left, ask later.
  bool ask(size_t suspect) {
    const Endpoint& endpoint = suspects_[suspect].endpoint;
    try {
      const SocketAddress address = resolve(endpoint.host, endpoint.port).front();
      UniqueFd socket = make_probe(address.family());
      if (::connect(socket.get(), address.get(), address.length) != 0 && errno == EINPROGRESS)
        open_.push_back({suspect, std::move(socket)});
      else
        answers_[suspect] = judge(errno_of_connect(socket.get()));
    } catch (const SystemError&) {
      return false;
    } catch (const Error&) {
      answers_[suspect] = Life::unreachable;  // an unknown host name
    }
    return true;
  }
  // After a connect that has ended at once.
  static int errno_of_connect(int socket) {
    sockaddr_storage peer{};
    socklen_t length = sizeof peer;
    const int refused = errno;
    return ::getpeername(socket, reinterpret_cast<sockaddr*>(&peer), &length) == 0 ? 0 : refused;
  }

  // False: the deadline has passed.
  bool hear() {
    std::vector<pollfd> entries;
    for (const Question& question : open_) entries.push_back({question.socket.get(), POLLOUT, 0});
    const int ready = ::poll(entries.data(), entries.size(), deadline_.poll_timeout());
    if (ready < 0 && errno != EINTR) return false;
    if (ready <= 0) return !deadline_.passed();
    std::vector<Question> still_open;
    for (size_t i = 0; i < open_.size(); ++i) {
      if (entries[i].revents == 0)
        still_open.push_back(std::move(open_[i]));
      else
        answers_[open_[i].suspect] = judge(pending_error(open_[i].socket.get()));
    }
    open_ = std::move(still_open);
    return true;
  }

  const std::span<const Suspect> suspects_;
  const Deadline deadline_;
  std::vector<std::optional<Life>> answers_;
  std::vector<Question> open_;
  size_t next_ = 0;
};

Blame name_culprits(std::span<const Suspect> suspects, const std::vector<std::optional<Life>>& lives) {
  Blame result;
  std::vector<std::string> culprits;
  const auto collect = [&](Life life, const char* fate) {
    for (size_t i = 0; i < suspects.size(); ++i) {
      if (lives[i] != life) continue;
      if (!result.rank) result.rank = suspects[i].rank;
      culprits.push_back(suspects[i].name + fate);
    }
  };
  collect(Life::dead, " died");
  collect(Life::unreachable, " is unreachable");
  result.reason = join_some(std::move(culprits), kMaxNamed);
  return result;
}

}  // namespace

Beacon::Beacon(const std::string& address) : socket_(listen_tcp(address, 0, kQueue)) {
  ::setsockopt(socket_.get(), IPPROTO_TCP, TCP_DEFER_ACCEPT, &kAcceptDelay, sizeof kAcceptDelay);
  endpoint_ = {ip_text(local_address(socket_.get())), port_of(local_address(socket_.get()))};
}

std::vector<std::optional<Life>> probe_all(std::span<const Suspect> suspects, Deadline deadline) {
  return Inquiry(suspects, deadline).hold();
}

Blame blame(std::span<const Suspect> suspects, Deadline deadline) noexcept try {
  return name_culprits(suspects, probe_all(suspects, deadline));
} catch (const std::exception&) {
  return {};
}

Blame blame_dead(std::span<const Suspect> suspects, Deadline deadline) noexcept try {
  std::vector<std::optional<Life>> lives = probe_all(suspects, deadline);
  std::replace(lives.begin(), lives.end(), std::optional(Life::unreachable), std::optional<Life>());
  return name_culprits(suspects, lives);
} catch (const std::exception&) {
  return {};
}

}  // namespace trireme::comm
