#include "trireme/core/http/parser.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>

#include "trireme/core/text.h"

namespace trireme::http {
namespace {

constexpr std::string_view kLineEnd = "\r\n";
constexpr std::string_view kHeadEnd = "\r\n\r\n";
constexpr size_t kChunkLineBytes = 256;
constexpr const char* kNoRequestLine = "the first line is not that of an HTTP request: METHOD /path HTTP/1.1";

bool is_token(std::string_view text) {
  constexpr std::string_view kMarks = "!#$%&'*+-.^_`|~";
  return !text.empty() && std::all_of(text.begin(), text.end(), [&](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
           kMarks.find(c) != std::string_view::npos;
  });
}

/// Visible ASCII, which is all a target may hold.
bool is_visible(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return c > ' ' && c < '\x7f'; });
}

bool has_control(std::string_view text) {
  return std::any_of(text.begin(), text.end(), [](unsigned char c) { return (c < ' ' && c != '\t') || c == 0x7f; });
}

/// NAME: VALUE, with nothing in it that another reader could take for the end of the line.
bool is_header(std::string_view line) {
  const size_t colon = line.find(':');
  return colon != std::string_view::npos && is_token(line.substr(0, colon)) && !has_control(line);
}

/// From `begin` on; what comes before has been looked at.
bool has_lone_line_feed(std::string_view text, size_t begin) {
  for (size_t at = text.find('\n', begin); at != std::string_view::npos; at = text.find('\n', at + 1))
    if (at == 0 || text[at - 1] != '\r') return true;
  return false;
}

/// "/x?y" of "http://host/x?y", which is how a proxy is asked and every server must understand (RFC 9112, 3.2.2).
/// Another target is left as it is; "" when the host is missing.
std::string without_host(std::string_view target) {
  const std::string lower = to_lower(target.substr(0, 8));
  const size_t host = lower.starts_with("http://") ? 7 : lower.starts_with("https://") ? 8 : 0;
  if (host == 0) return std::string(target);
  const std::string_view rest = target.substr(host);
  const std::string_view path = rest.substr(std::min(rest.find_first_of("/?#"), rest.size()));
  if (path.size() == rest.size()) return {};
  return path.starts_with('/') ? std::string(path) : "/" + std::string(path);
}

/// Whether what comes before `ending` is longer than `most`, in a text that has it at `end` or not yet. One that may
/// still begin in the last bytes counts in the sender's favour: how the bytes are cut must not matter.
bool too_long(const std::string& text, size_t end, std::string_view ending, size_t most) {
  return end == std::string::npos ? text.size() >= most + ending.size() : end > most;
}

}  // namespace

Parser::State Parser::state() const {
  if (step_ == Step::complete) return State::complete;
  return step_ == Step::refused ? State::refused : State::reading;
}

bool Parser::wants_continue() {
  return std::exchange(wants_continue_, false);
}

size_t Parser::take(std::string_view bytes) {
  size_t used = 0;
  while (state() == State::reading && used < bytes.size()) used += take_some(bytes.substr(used));
  return used;
}

size_t Parser::take_some(std::string_view bytes) {
  switch (step_) {
    case Step::head:
      return take_head(bytes);
    case Step::body:
    case Step::chunk:
      return take_body(bytes);
    default:
      return take_line(bytes);
  }
}

// --- the head

/// Refuses bytes that cannot begin a request: else the server would wait for the rest until the timeout.
bool Parser::begin(char first) {
  constexpr char kTlsHandshake = 0x16;
  begun_ = true;
  if (first == kTlsHandshake)
    return refuse(problem("not_http"),
                  "this port speaks plain HTTP and the client TLS: write http:// instead of https://, or put a proxy "
                  "that speaks TLS in front");
  return is_token({&first, 1}) || refuse(problem("not_http"), kNoRequestLine);
}

size_t Parser::take_head(std::string_view bytes) {
  if (!begun_) {
    // Empty lines before a request are to be ignored (RFC 9112, 2.2): some clients end a body with one too many.
    const size_t first = bytes.find_first_not_of(kLineEnd);
    if (first != 0) return std::min(first, bytes.size());
    if (!begin(bytes[0])) return bytes.size();
  }
  const size_t before = line_.size();
  line_.append(bytes);
  const size_t end = line_.find(kHeadEnd, before - std::min(before, kHeadEnd.size() - 1));
  if (!read_first_line(before)) return bytes.size();
  if (has_lone_line_feed(std::string_view(line_).substr(0, end), before)) {
    refuse(problem("bad_header"), "a line ends in LF alone; in HTTP lines end in CR LF");
    return bytes.size();
  }
  if (too_long(line_, end, kHeadEnd, limits_.header_bytes)) {
    refuse(problem("header_too_large"), fmt::format("the header has more than {} bytes", limits_.header_bytes));
    return bytes.size();
  }
  if (end == std::string::npos) return bytes.size();
  line_.resize(end);
  read_head();
  std::string().swap(line_);  // clear() would keep its memory, beside the whole body
  return end + kHeadEnd.size() - before;
}

/// Reads the request line as soon as it is whole: an HTTP/0.9 client sends nothing after it.
bool Parser::read_first_line(size_t before) {
  if (headers_at_ > 0) return true;
  const size_t end = line_.find(kLineEnd, before - std::min<size_t>(before, 1));
  if (end == std::string::npos || end > limits_.header_bytes || line_.find('\n') < end) return true;
  headers_at_ = end + kLineEnd.size();
  return read_request_line(std::string_view(line_).substr(0, end));
}

void Parser::read_head() {
  std::string_view rest = std::string_view(line_).substr(std::min(headers_at_, line_.size()));
  while (!rest.empty()) {
    const std::string_view line = rest.substr(0, rest.find(kLineEnd));
    rest.remove_prefix(std::min(rest.size(), line.size() + kLineEnd.size()));
    if (!read_header(line)) return;
  }
  choose_body();
}

bool Parser::read_request_line(std::string_view line) {
  const size_t method_end = line.find(' ');
  const size_t target_end = line.rfind(' ');
  if (method_end == std::string_view::npos || method_end == target_end || !is_token(line.substr(0, method_end)))
    return refuse(problem("not_http"), kNoRequestLine);
  const std::string_view version = line.substr(target_end + 1);
  if (!version.starts_with("HTTP/")) return refuse(problem("not_http"), kNoRequestLine);
  if (version != "HTTP/1.1" && version != "HTTP/1.0")
    return refuse(problem("bad_version"), "the version is not supported; use HTTP/1.1 or HTTP/1.0");
  request_.method = line.substr(0, method_end);
  old_ = version == "HTTP/1.0";
  request_.keep_alive = !old_;  // unless told otherwise
  return read_target(line.substr(method_end + 1, target_end - method_end - 1));
}

bool Parser::read_target(std::string_view text) {
  const std::string target = without_host(text);
  if (!is_visible(text) || !(target.starts_with('/') || target == "*"))
    return refuse(problem("not_http"), "the target of the request is neither /path nor http://host/path");
  const size_t mark = target.find('?');
  request_.path = target.substr(0, mark);
  if (mark != std::string::npos) request_.query = target.substr(mark + 1);
  return true;
}

bool Parser::read_header(std::string_view line) {
  if (!is_header(line)) return refuse(problem("bad_header"), "a header is not of the form NAME: VALUE");
  if (request_.headers.size() == limits_.headers)
    return refuse(problem("too_many_headers"), fmt::format("there are more than {} headers", limits_.headers));
  const size_t colon = line.find(':');
  request_.headers.emplace_back(to_lower(line.substr(0, colon)), trim(line.substr(colon + 1)));
  return true;
}

// --- which body

/// How often a header is there.
size_t Parser::count(std::string_view name) const {
  return static_cast<size_t>(std::count_if(request_.headers.begin(), request_.headers.end(),
                                           [&](const auto& header) { return header.first == name; }));
}

bool Parser::choose_body() {
  return check_host() && read_body_length() && read_expectation();
}

bool Parser::check_host() {
  if (count("host") > 1 || (!old_ && count("host") == 0))
    return refuse(problem("bad_header"), "HTTP/1.1 needs exactly one Host header");
  const std::string connection = to_lower(request_.header("connection"));
  if (connection.find("close") != std::string::npos) request_.keep_alive = false;
  if (old_ && connection.find("keep-alive") != std::string::npos) request_.keep_alive = true;
  return true;
}

bool Parser::read_body_length() {
  constexpr int64_t kMaxLength = int64_t{1} << 60;
  const bool chunked = count("transfer-encoding") > 0;
  if (count("content-length") + count("transfer-encoding") > 1)
    return refuse(problem("bad_header"),
                  "the length of the body is given more than once (Content-Length, Transfer-Encoding)");
  if (chunked && old_) return refuse(problem("bad_header"), "HTTP/1.0 has no Transfer-Encoding");
  if (chunked && to_lower(request_.header("transfer-encoding")) != "chunked")
    return refuse(problem("bad_transfer_encoding"), "the only Transfer-Encoding supported is chunked");
  if (count("content-length") > 0) {
    const std::string_view text = request_.header("content-length");
    const auto number = parse_int(text, 0, kMaxLength);
    if (!number || text.starts_with('-'))
      return refuse(problem("bad_header"), "Content-Length is not a number of bytes");
    left_ = static_cast<uint64_t>(*number);
  }
  if (request_.method == "POST" && !chunked && count("content-length") == 0)
    return refuse(problem("length_required"),
                  "POST needs Content-Length (0 without a body) or Transfer-Encoding: chunked");
  if (left_ > limits_.body_bytes) return refuse_body(left_);
  step_ = chunked ? Step::chunk_size : left_ > 0 ? Step::body : Step::complete;
  return true;
}

bool Parser::read_expectation() {
  const std::string_view expected = request_.header("expect");
  if (!expected.empty() && to_lower(expected) != "100-continue")
    return refuse(problem("bad_expectation"), "the only Expect supported is 100-continue");
  // An HTTP/1.0 client would take it for the answer (RFC 9110, 10.1.1).
  wants_continue_ = !expected.empty() && !old_ && step_ != Step::complete;
  return true;
}

// --- the body

size_t Parser::take_body(std::string_view bytes) {
  const size_t used = std::min<uint64_t>(left_, bytes.size());
  make_room(used);
  request_.body.append(bytes.substr(0, used));
  left_ -= used;
  if (left_ == 0) step_ = step_ == Step::body ? Step::complete : Step::chunk_end;
  return used;
}

/// Twice the room there was, but none beyond the end of the body: memory that nothing can fill would be held as well.
void Parser::make_room(size_t more) {
  std::string& body = request_.body;
  if (body.size() + more <= body.capacity()) return;
  const size_t most = step_ == Step::body ? body.size() + left_ : limits_.body_bytes;
  std::string roomier;  // a new one, as reserve() of the old one would at least double it
  roomier.reserve(std::min(most, std::max(2 * body.capacity(), body.size() + more)));
  roomier.append(body);
  body.swap(roomier);
}

/// The lines around chunks, and those after the last.
size_t Parser::take_line(std::string_view bytes) {
  const size_t before = line_.size();
  line_.append(bytes.substr(0, kChunkLineBytes + kLineEnd.size()));
  const size_t end = line_.find(kLineEnd, before - std::min<size_t>(before, 1));
  if (too_long(line_, end, kLineEnd, kChunkLineBytes)) {
    refuse(problem("bad_chunk"), fmt::format("a line between chunks has more than {} bytes", kChunkLineBytes));
    return bytes.size();
  }
  if (end == std::string::npos) return line_.size() - before;
  std::string line = std::exchange(line_, {});  // clear() would keep its memory, beside the whole body
  line.resize(end);
  end_line(line);
  return end + kLineEnd.size() - before;
}

void Parser::end_line(std::string_view line) {
  if (step_ == Step::chunk_size) {
    read_chunk_size(line);
  } else if (step_ == Step::chunk_end) {
    step_ = Step::chunk_size;
    if (!line.empty()) refuse(problem("bad_chunk"), "a chunk is longer than it says");
  } else {
    read_trailer(line);
  }
}

/// Headers after the last chunk are read and forgotten.
void Parser::read_trailer(std::string_view line) {
  trailer_bytes_ += line.size();
  if (line.empty())
    step_ = Step::complete;
  else if (!is_header(line))
    refuse(problem("bad_header"), "a header after the last chunk is not of the form NAME: VALUE");
  else if (trailer_bytes_ > limits_.header_bytes)
    refuse(problem("header_too_large"), fmt::format("the trailer has more than {} bytes", limits_.header_bytes));
}

void Parser::read_chunk_size(std::string_view line) {
  const std::string_view digits = line.substr(0, line.find(';'));  // no spaces: readers differ about them
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), left_, 16);
  if (digits.empty() || error != std::errc() || end != digits.data() + digits.size() || has_control(line)) {
    refuse(problem("bad_chunk"), "a chunk does not begin with its size");
  } else if (left_ > limits_.body_bytes - request_.body.size()) {
    refuse_body(left_ > UINT64_MAX - request_.body.size() ? left_ : left_ + request_.body.size());
  } else {
    step_ = left_ == 0 ? Step::trailer : Step::chunk;
  }
}

bool Parser::refuse(const Problem& problem, std::string_view message) {
  step_ = Step::refused;
  wants_continue_ = false;
  request_.keep_alive = false;  // where the next request begins is not known
  refusal_ = error_response(problem, message);
  return false;
}

bool Parser::refuse_body(uint64_t bytes) {
  return refuse(problem("body_too_large"),
                fmt::format("the body has {} bytes or more, the limit is {}", bytes, limits_.body_bytes));
}

}  // namespace trireme::http
