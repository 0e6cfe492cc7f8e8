// libFuzzer target for what a launcher reads from other nodes, from files and from schedulers: any text is read or
// refused by an Error, and what is read is written as a text that reads the same. The first byte says what the rest is:
//
//   i introduction   n node   r roster   o outcome   w worker's ending   s snapshots of ranks   v view of a node
//   j state of a job   h history.json   f hostfile   l list of hosts   e variables of a scheduler
//
//   cmake -B build-fuzz -DCMAKE_CXX_COMPILER=clang++-16 -DTRIREME_FUZZ=ON -DTRIREME_SANITIZE=address,undefined
//   build-fuzz/bin/launch_fuzz -max_total_time=30 trireme/launch/fuzz/corpus
#include <cstdint>
#include <cstdlib>
#include <map>
#include <string>

#include "trireme/core/error.h"
#include "trireme/core/log.h"
#include "trireme/core/text.h"
#include "trireme/launch/clusters/cluster.h"
#include "trireme/launch/live/job_report.h"
#include "trireme/launch/live/page_json.h"
#include "trireme/launch/nodes/introduction.h"
#include "trireme/launch/nodes/roster.h"
#include "trireme/launch/options/hostfile.h"
#include "trireme/launch/report/outcome.h"
#include "trireme/store/memory_store.h"
#include "trireme/watch/snapshot.h"

namespace {

using namespace trireme;
using namespace trireme::launch;

void require(bool holds) {
  if (!holds) std::abort();
}

/// Of what was written, nothing may be refused.
template <typename Read, typename Write>
void round_trip(const std::string& text, Read read, Write write) {
  const std::string written = write(read(text));
  try {
    require(write(read(written)) == written);
  } catch (const Error&) {
    std::abort();
  }
}

template <auto kRead>
void read_and_write(const std::string& text) {
  round_trip(text, kRead, [](const auto& value) { return to_json(value); });
}

void rosters(const std::string& text) {
  const auto read = [](const std::string& bytes) {
    store::MemoryStore store;
    store.set("roster/0", bytes);
    return *roster_within(store, 0, Deadline::never());
  };
  const auto write = [](const Roster& roster) {
    store::MemoryStore store;
    publish_roster(store, 0, roster);
    return *store.try_get("roster/0");
  };
  round_trip(text, read, write);
}

void job_states(const std::string& text) {
  const auto job = job_view_from_json(text);
  if (!job) return;
  const auto again = job_view_from_json(state_json(*job));
  require(again && state_json(*again) == state_json(*job));
}

void histories(const std::string& text) {
  report_html(text, {{0, text}});
}

void hostfiles(const std::string& text) {
  require(!parse_hostfile(text, "fuzz").empty());
}

void host_lists(const std::string& text) {
  require(first_host(text).size() <= text.size());
  parse_host_slots(text, "fuzz");
}

void schedulers(const std::string& text) {
  Environment variables;
  for (const std::string& line : split(text, '\n')) {
    const size_t sign = line.find('=');
    if (sign != std::string::npos) variables.emplace_back(line.substr(0, sign), line.substr(sign + 1));
  }
  cluster_options(variables);
}

const std::map<char, void (*)(const std::string&)> kTargets = {
    {'i', read_and_write<introduction_from_json>},
    {'n', read_and_write<node_from_json>},
    {'r', rosters},
    {'o', read_and_write<outcome_from_json>},
    {'w', read_and_write<worker_ending_from_json>},
    {'s', read_and_write<watch::snapshots_from_json>},
    {'v', read_and_write<node_view_from_json>},
    {'j', job_states},
    {'h', histories},
    {'f', hostfiles},
    {'l', host_lists},
    {'e', schedulers},
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  set_log_level(LogLevel::off);
  const std::string text(reinterpret_cast<const char*>(data), size);
  const auto target = kTargets.find(text.empty() ? '\0' : text.front());
  if (target == kTargets.end()) return 0;
  try {
    target->second(text.substr(1));
  } catch (const Error&) {
  }
  return 0;
}
