#include "trireme/launch/machine/executable.h"

#include <elf.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <sstream>
#include <string_view>

#include "trireme/core/error.h"
#include "trireme/core/file.h"
#include "trireme/core/text.h"
#include "trireme/core/training_note.h"

namespace trireme::launch {
namespace {

namespace fs = std::filesystem;
using InPath = std::function<bool(const std::string&)>;

constexpr size_t kHeadSize = 4096;  // the #! line, or the ELF header and its program headers

template <typename... Args>
[[noreturn]] void refuse(fmt::format_string<Args...> format, Args&&... args) {
  throw Error(exit_code::kNotExecutable, printable(fmt::format(format, std::forward<Args>(args)...)));
}

void check_kind(const std::string& path) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (fs::is_directory(status)) refuse("{}: is a directory, not a program", path);
  if (!fs::is_regular_file(status)) refuse("{}: is not a regular file", path);
}

void check_permission(const std::string& path) {
  if (::access(path.c_str(), X_OK) == 0) return;
  std::error_code error;
  const auto any_x = fs::perms::owner_exec | fs::perms::group_exec | fs::perms::others_exec;
  if ((fs::status(path, error).permissions() & any_x) == fs::perms::none)
    refuse("{}: is not executable; try: chmod +x {}", path, path);
  refuse("{}: this user may not execute it; check the owner, and that its disk is not mounted noexec", path);
}

// The program that `#!/usr/bin/env -S name args` asks for.
std::string env_program(std::istringstream& words) {
  std::string word;
  while (words >> word)
    if (!word.starts_with('-') && word.find('=') == std::string::npos) return word;
  return "";
}

void check_shebang(const std::string& path, std::string_view head, const InPath& in_path) {
  const std::string_view line = head.substr(2, head.find('\n') - 2);
  if (line.ends_with('\r'))
    refuse("{}: its #! line ends in a carriage return, as Windows writes it; try: sed -i 's/\\r$//' {}", path, path);
  std::istringstream words{std::string(line)};
  std::string interpreter;
  std::error_code error;
  if (!(words >> interpreter)) refuse("{}: its #! line names no interpreter", path);
  if (!fs::is_regular_file(interpreter, error) || ::access(interpreter.c_str(), X_OK) != 0)
    refuse("{}: its #! line asks for {}, which does not exist here or is not executable", path, interpreter);
  if (fs::path(interpreter).filename() != "env") return;
  const std::string program = env_program(words);
  if (!program.empty() && program.find('/') == std::string::npos && !in_path(program))
    refuse("{}: its #! line asks for {}, which is not in PATH", path, program);
}

std::string machine_name(unsigned machine) {
  static const std::map<unsigned, std::string> kNames = {{EM_X86_64, "x86-64"},
                                                         {EM_AARCH64, "AArch64 (ARM 64-bit)"},
                                                         {EM_386, "x86 (32-bit)"},
                                                         {EM_PPC64, "POWER"},
                                                         {EM_RISCV, "RISC-V"}};
  const auto known = kNames.find(machine);
  return known == kNames.end() ? fmt::format("ELF machine {}", machine) : known->second;
}

// The machine this launcher was built for, from its own file.
unsigned native_machine() {
  const auto self = read_head("/proc/self/exe", sizeof(Elf64_Ehdr));
  if (!self || self->size() < sizeof(Elf64_Ehdr)) return EM_NONE;
  Elf64_Ehdr header;
  std::memcpy(&header, self->data(), sizeof header);
  return header.e_machine;
}

bool can_run(unsigned machine) {
  const unsigned native = native_machine();
  return native == EM_NONE || machine == native || (native == EM_X86_64 && machine == EM_386);
}

// Where the program headers end; more than `head` has when they are not all in it.
uint64_t end_of_headers(const Elf64_Ehdr& header, std::string_view head) {
  if (header.e_phoff > head.size()) return header.e_phoff;  // also keeps the sum below from running over
  return header.e_phoff + uint64_t{header.e_phnum} * sizeof(Elf64_Phdr);
}

// Requires that the headers are all in `head`.
std::vector<Elf64_Phdr> segments_of(const Elf64_Ehdr& header, std::string_view head, uint32_t type) {
  std::vector<Elf64_Phdr> segments;
  for (unsigned i = 0; i < header.e_phnum; ++i) {
    Elf64_Phdr segment;
    std::memcpy(&segment, head.data() + header.e_phoff + i * sizeof segment, sizeof segment);
    if (segment.p_type == type) segments.push_back(segment);
  }
  return segments;
}

// The bytes the file must have for its headers and segments to be whole.
uint64_t needed_size(const Elf64_Ehdr& header, std::string_view head) {
  uint64_t size = end_of_headers(header, head);
  if (size > head.size()) return size;
  for (const Elf64_Phdr& segment : segments_of(header, head, PT_LOAD))
    size = std::max(size, uint64_t{segment.p_offset} + segment.p_filesz);
  return size;
}

constexpr uint64_t kMaxNotes = 65536;  // bytes; those of a program are a few hundred

std::string read_notes(std::ifstream& file, const Elf64_Phdr& segment) {
  std::string notes(std::min(uint64_t{segment.p_filesz}, kMaxNotes), '\0');
  file.seekg(static_cast<std::streamoff>(segment.p_offset));
  file.read(notes.data(), static_cast<std::streamsize>(notes.size()));
  return notes;
}

void check_segments(const std::string& path, const Elf64_Ehdr& header, std::string_view head) {
  std::error_code error;
  const uint64_t size = fs::file_size(path, error);
  if (error) return;
  if (header.e_phnum == 0) refuse("{}: this ELF file has nothing to load; build it again", path);
  const uint64_t needed = needed_size(header, head);
  if (size < needed) refuse("{}: is truncated ({} bytes of at least {}); copy or build it again", path, size, needed);
}

void check_elf(const std::string& path, std::string_view head) {
  if (head.size() < sizeof(Elf64_Ehdr))
    refuse("{}: is truncated ({} bytes, less than an ELF header); copy or build it again", path, head.size());
  Elf64_Ehdr header;
  std::memcpy(&header, head.data(), sizeof header);
  if (!can_run(header.e_machine))
    refuse("{}: is built for {}, and this machine is {}; build it here", path, machine_name(header.e_machine),
           machine_name(native_machine()));
  if (header.e_type != ET_EXEC && header.e_type != ET_DYN)
    refuse("{}: is an object or core file, not a linked program", path);
  if (header.e_ident[EI_CLASS] == ELFCLASS64) check_segments(path, header, head);
}

}  // namespace

void check_executable(const std::string& path, const InPath& in_path) {
  check_kind(path);
  check_permission(path);
  const auto head = read_head(path, kHeadSize);
  if (!head) return;  // executable but not readable: the kernel may still run it
  if (head->empty()) refuse("{}: is empty; copy or build it again", path);
  if (head->starts_with("#!"))
    check_shebang(path, *head, in_path);
  else if (head->starts_with(ELFMAG))
    check_elf(path, *head);
  else
    refuse("{}: is neither a program (ELF) nor a script; a script's first line must be like #!/bin/sh", path);
}

bool has_training_note(const std::string& path) {
  const std::string head = read_head(path, kHeadSize).value_or("");
  Elf64_Ehdr header;
  if (!head.starts_with(ELFMAG) || head.size() < sizeof header) return false;
  std::memcpy(&header, head.data(), sizeof header);
  if (header.e_ident[EI_CLASS] != ELFCLASS64 || end_of_headers(header, head) > head.size()) return false;
  const TrainingNote note;
  const std::string_view wanted(reinterpret_cast<const char*>(&note), sizeof note);
  std::ifstream file(path, std::ios::binary);
  for (const Elf64_Phdr& segment : segments_of(header, head, PT_NOTE))
    if (read_notes(file, segment).find(wanted) != std::string::npos) return true;
  return false;
}

}  // namespace trireme::launch
