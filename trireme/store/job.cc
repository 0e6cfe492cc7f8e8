#include "trireme/store/job.h"

#include <unistd.h>

#include <algorithm>

#include "trireme/core/env.h"
#include "trireme/core/error.h"
#include "trireme/core/log.h"
#include "trireme/core/net.h"
#include "trireme/core/text.h"
#include "trireme/core/token.h"
#include "trireme/store/memory_store.h"
#include "trireme/store/tcp_client.h"

namespace trireme {
namespace {

// The descriptor is inherited by every process a worker starts, so it is read at an offset and left open.
Token token_from_descriptor(const std::string& text) {
  const auto fd = parse_int(text, 0, INT32_MAX);
  std::string bytes(Token::kSize, '\0');
  const ssize_t size = fd ? ::pread(static_cast<int>(*fd), bytes.data(), bytes.size(), 0) : -1;
  if (size != static_cast<ssize_t>(Token::kSize))
    throw UsageError(
        "TRIREME_TOKEN_FD={} does not hold the job token; was the descriptor closed on the way from the launcher?",
        text);
  return Token::from_bytes(bytes);
}

// As the launcher's --link_timeout says.
Millis link_timeout() {
  const auto text = env::get_nonempty("TRIREME_LINK_TIMEOUT");
  if (!text) return kLinkTimeout;
  const auto millis = parse_int(*text, 1000, INT64_MAX);
  if (!millis) throw UsageError("TRIREME_LINK_TIMEOUT={}: must be a number of milliseconds from 1000 on", *text);
  return Millis(*millis);
}

std::shared_ptr<Store> connect_store(const ParallelEnv& env, const JobOptions& options) {
  const auto address = env::get_nonempty("TRIREME_STORE");
  if (!address) return nullptr;
  const auto token = env::get_nonempty("TRIREME_TOKEN_FD");
  if (!token) throw UsageError("TRIREME_STORE is set but TRIREME_TOKEN_FD is not; both come from `trireme launch`");
  store::TcpStore::Options store{.server = parse_endpoint(*address, "TRIREME_STORE"),
                                 .token = token_from_descriptor(*token),
                                 .name = fmt::format("rank {}", env.rank)};
  store.link_timeout = link_timeout();
  store.request_timeout = std::max<Clock::duration>(store.request_timeout, store.link_timeout);
  return store::TcpStore::connect(std::move(store), Deadline::in(std::chrono::seconds(options.timeout_seconds)));
}

}  // namespace

Job connect_job(const JobOptions& options) {
  Job job;
  job.env = ParallelEnv::from_environment();
  if (job.env.launched) {
    job.store = connect_store(job.env, options);
    return job;
  }
  if (options.strict || env::get("TRIREME_STRICT") == "1")
    throw UsageError(
        "init_parallel_env: not started by a launcher (strict mode); run it with: trireme launch -n 2 PROGRAM");
  log_info("not started by a launcher: a world of one process (for more: trireme launch -n 2 PROGRAM)");
  job.store = std::make_shared<store::MemoryStore>();
  return job;
}

}  // namespace trireme
