#include "trireme/launch/machine/program.h"

#include <elf.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>

#include "trireme/core/error.h"
#include "trireme/core/file.h"
#include "trireme/launch/machine/executable.h"

namespace trireme::launch {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;
using Words = std::vector<std::string>;

// Works in a folder of its own.
class Program : public testing::Test {
 protected:
  Program() : before_(fs::current_path()) { fs::current_path(folder_.path()); }
  ~Program() override { fs::current_path(before_); }

  static void write(const std::string& name, const std::string& content, int mode = 0755) {
    std::ofstream(name, std::ios::binary) << content;
    fs::permissions(name, static_cast<fs::perms>(mode));
  }

  static Words resolve(const Words& command, bool no_python = false, const std::string& path = "/usr/bin:/bin") {
    return resolve_program(command, path, no_python);
  }

  static void expect_error(int code, const Words& command, const Words& words, bool no_python = false,
                           const std::string& path = "/usr/bin:/bin") {
    try {
      resolve(command, no_python, path);
      ADD_FAILURE() << command[0] << " was accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.exit_code(), code) << error.what();
      for (const std::string& word : words) EXPECT_THAT(error.what(), HasSubstr(word));
    }
  }

  // The beginning of this very test program, changed and cut.
  static std::string own_elf(size_t size) { return *read_head("/proc/self/exe", size); }

  TempDir folder_;
  fs::path before_;
};

constexpr const char* kScript = "#!/bin/sh\nexit 0\n";

TEST_F(Program, APathIsTakenAsItIs) {
  write("train", kScript);
  EXPECT_THAT(resolve({"./train", "-n", "2"}), ElementsAre("./train", "-n", "2"));
  EXPECT_THAT(resolve({"/proc/self/exe"}), ElementsAre("/proc/self/exe"));
}

TEST_F(Program, ANameIsLookedForInPath) {
  fs::create_directories("one");
  fs::create_directories("two/tool");
  write("one/tool", kScript, 0644);
  fs::create_directories("three");
  write("three/tool", kScript);
  EXPECT_THAT(resolve({"tool", "x"}, false, "missing:one:two:three"), ElementsAre("three/tool", "x"));
}

TEST_F(Program, AnEmptyPartOfPathIsThisFolder) {
  write("tool", kScript);
  EXPECT_THAT(resolve({"tool"}, false, "/nowhere::/bin"), ElementsAre("./tool"));
}

TEST_F(Program, PythonScriptsGetPython) {
  write("train.py", "print(1)\n", 0644);
  write("python3", kScript);
  EXPECT_THAT(resolve({"train.py", "--lr", "1"}, false, folder_.path()),
              ElementsAre("python3", "-u", "train.py", "--lr", "1"));
}

TEST_F(Program, AVirtualEnvironmentHasAPythonOfItsOwn) {
  fs::create_directories("venv/bin");
  write("venv/bin/trireme", kScript);
  write("venv/bin/python3", kScript);
  EXPECT_EQ(python_beside("venv/bin/trireme"), std::nullopt);  // any other bin
  write("venv/pyvenv.cfg", "", 0644);
  EXPECT_EQ(python_beside("venv/bin/trireme"), folder_.path() / "venv/bin/python3");
  EXPECT_EQ(python_beside("trireme"), std::nullopt);
  EXPECT_EQ(python_beside(""), std::nullopt);
  fs::remove("venv/bin/python3");
  EXPECT_EQ(python_beside("venv/bin/trireme"), std::nullopt);
}

TEST_F(Program, NoPythonExecutesTheScriptItself) {
  write("train.py", kScript);
  EXPECT_THAT(resolve({"./train.py"}, true), ElementsAre("./train.py"));
  write("plain.py", "print(1)\n", 0644);
  expect_error(126, {"./plain.py"}, {"chmod +x"}, true);
}

TEST_F(Program, PythonScriptsThatCannotRun) {
  write("train.py", "", 0644);
  fs::create_directories("folder.py");
  expect_error(127, {"trian.py"}, {"trian.py: no such file", "did you mean ./train.py?"});
  expect_error(126, {"folder.py"}, {"folder.py", "folder"});
  expect_error(127, {"train.py"}, {"needs python3", "not in PATH", "--no-python"}, false, "/nowhere");
}

TEST_F(Program, MissingPrograms) {
  write("train", kScript);
  expect_error(127, {"train"}, {"train: not found in PATH", "did you mean ./train?"});
  expect_error(127, {"./traim"}, {"./traim: no such file", "did you mean ./train?"});
  expect_error(127, {"traim"}, {"not found in PATH", "did you mean ./train?"});
  expect_error(127, {"./nothing/like/it"}, {"no such file", "the folder ./nothing/like does not exist"});
  expect_error(127, {"zzzzzzzz"}, {"zzzzzzzz: not found in PATH"}, false, "");
  expect_error(127, {""}, {"its name is empty"});
  fs::create_symlink("gone", "link");
  expect_error(127, {"./link"}, {"no such file"});
}

TEST_F(Program, NotExecutable) {
  write("train", kScript, 0644);
  expect_error(126, {"./train"}, {"./train: is not executable", "chmod +x ./train"});
  expect_error(126, {"train"}, {"is not executable"}, false, folder_.path());
  fs::create_directories("folder");
  expect_error(126, {"./folder"}, {"./folder: is a directory"});
  expect_error(126, {"/dev/null"}, {"not a regular file"});
}

TEST_F(Program, ScriptsWithoutTheirInterpreter) {
  write("a", "#!/opt/no/python3 -u\n");
  expect_error(126, {"./a"}, {"./a", "asks for /opt/no/python3", "does not exist"});
  write("b", "#!/usr/bin/env -S X=1 no-such-python -u\n");
  expect_error(126, {"./b"}, {"asks for no-such-python", "not in PATH"});
  write("c", "#!/bin/sh\r\nexit\r\n");
  expect_error(126, {"./c"}, {"carriage return", "sed -i"});
  write("d", "#!\n");
  expect_error(126, {"./d"}, {"names no interpreter"});
  write("e", "#!/bin\n");
  expect_error(126, {"./e"}, {"asks for /bin"});
  write("f", "#! /usr/bin/env sh\n");
  EXPECT_THAT(resolve({"./f"}), ElementsAre("./f"));
  write("g", "#!/bin/sh");
  EXPECT_THAT(resolve({"./g"}), ElementsAre("./g"));
}

TEST_F(Program, FilesThatAreNoPrograms) {
  write("empty", "");
  expect_error(126, {"./empty"}, {"./empty: is empty"});
  write("text", "hello\n");
  expect_error(126, {"./text"}, {"neither a program (ELF) nor a script", "#!/bin/sh"});
}

TEST_F(Program, ElfFilesForAnotherMachine) {
  std::string elf = own_elf(4096);
  const Elf64_Half other = EM_S390;
  std::memcpy(elf.data() + offsetof(Elf64_Ehdr, e_machine), &other, sizeof other);
  write("foreign", elf);
  expect_error(126, {"./foreign"}, {"./foreign: is built for ELF machine 22", "this machine is", "build it here"});
}

TEST_F(Program, BrokenElfFiles) {
  write("tiny", own_elf(20));
  expect_error(126, {"./tiny"}, {"truncated", "20 bytes"});
  write("cut", own_elf(4096));
  expect_error(126, {"./cut"}, {"truncated (4096 bytes of at least"});
  write("header", own_elf(64));
  expect_error(126, {"./header"}, {"truncated (64 bytes"});
}

TEST_F(Program, ElfFilesWithAbsurdHeaders) {
  std::string elf = own_elf(4096);
  const Elf64_Off far = ~Elf64_Off{0} - 8;
  std::memcpy(elf.data() + offsetof(Elf64_Ehdr, e_phoff), &far, sizeof far);
  write("far", elf);
  expect_error(126, {"./far"}, {"truncated"});
  std::string object = own_elf(4096);
  const Elf64_Half relocatable = ET_REL;
  std::memcpy(object.data() + offsetof(Elf64_Ehdr, e_type), &relocatable, sizeof relocatable);
  write("object", object);
  expect_error(126, {"./object"}, {"object or core file"});
}

TEST(TrainingNote, IsFoundOnlyInProgramsThatCarryIt) {
  EXPECT_FALSE(has_training_note("/proc/self/exe"));  // this test does not train
  EXPECT_FALSE(has_training_note("/bin/sh"));
  EXPECT_FALSE(has_training_note("/does/not/exist"));
  EXPECT_FALSE(has_training_note("/proc/self/cmdline"));
}

}  // namespace
}  // namespace trireme::launch
