// What a foreign training script does with the ports it is given: rank 0 listens on MASTER_PORT and every rank on its
// own PADDLE_CURRENT_ENDPOINT, with SO_REUSEADDR as torch's and Paddle's stores do; then every rank connects to rank
// 0's two ports. Exit 0 when all went well.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

namespace {

constexpr int kTries = 1000;  // of 5 ms

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  if (value == nullptr) {
    std::fprintf(stderr, "%s is not set\n", name);
    std::exit(3);
  }
  return value;
}

sockaddr_in address(const std::string& host, const std::string& port) {
  sockaddr_in result{};
  result.sin_family = AF_INET;
  result.sin_port = htons(static_cast<uint16_t>(std::stoi(port)));
  inet_pton(AF_INET, host.c_str(), &result.sin_addr);
  return result;
}

int listen_on(const sockaddr_in& where) {
  const int listener = socket(AF_INET, SOCK_STREAM, 0);
  const int on = 1;
  setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (bind(listener, reinterpret_cast<const sockaddr*>(&where), sizeof where) == 0 && listen(listener, 16) == 0)
    return listener;
  std::fprintf(stderr, "cannot listen on port %d: %s\n", ntohs(where.sin_port), std::strerror(errno));
  std::exit(4);
}

void connect_to(const sockaddr_in& where) {
  for (int i = 0; i < kTries; ++i) {
    const int client = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(client, reinterpret_cast<const sockaddr*>(&where), sizeof where) == 0) return;
    close(client);
    poll(nullptr, 0, 5);  // layers: sleep ok, because nothing tells a client that a port is listened on
  }
  std::fprintf(stderr, "cannot connect to port %d: %s\n", ntohs(where.sin_port), std::strerror(errno));
  std::exit(5);
}

void accept_from(int listener, int count) {
  for (int i = 0; i < count; ++i) accept(listener, nullptr, nullptr);
}

sockaddr_in endpoint(const std::string& text) {
  const size_t colon = text.rfind(':');
  return address(text.substr(0, colon), text.substr(colon + 1));
}

}  // namespace

int main() {
  const std::string endpoints = variable("PADDLE_TRAINER_ENDPOINTS");
  const sockaddr_in master = address(variable("MASTER_ADDR"), variable("MASTER_PORT"));
  const sockaddr_in mine = endpoint(variable("PADDLE_CURRENT_ENDPOINT"));
  const sockaddr_in first = endpoint(endpoints.substr(0, endpoints.find(',')));
  const bool is_first = variable("RANK") == "0";

  sockaddr_in everywhere = master;  // torch's store listens on every address
  everywhere.sin_addr.s_addr = INADDR_ANY;
  const int store = is_first ? listen_on(everywhere) : -1;
  const bool shared =
      is_first && mine.sin_port == master.sin_port;  // with --start_port; a script then uses one of them
  const int own = shared ? store : listen_on(mine);
  connect_to(master);
  connect_to(first);
  if (is_first) {  // it must not go before everybody has come
    accept_from(store, std::stoi(variable("WORLD_SIZE")));
    accept_from(own, std::stoi(variable("WORLD_SIZE")));
  }
  return 0;
}
