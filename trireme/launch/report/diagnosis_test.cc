#include "trireme/launch/report/diagnosis.h"

#include <gtest/gtest.h>
#include <signal.h>

#include <cerrno>

#include "trireme/launch/options/option_table.h"

namespace trireme::launch {
namespace {

using Lines = std::vector<std::string>;

Ending exited(int code) {
  Ending ending;
  ending.code = code;
  return ending;
}

Ending killed(int signal) {
  Ending ending;
  ending.exited = false;
  ending.signal = signal;
  return ending;
}

void expect_finding(const Lines& lines, const std::string& cause, const std::string& words) {
  const Diagnosis diagnosis = diagnose(exited(1), lines);
  EXPECT_EQ(diagnosis.cause, cause) << diagnosis.words;
  EXPECT_EQ(diagnosis.words, "exit 1: " + words);
}

// --- the exit status alone

TEST(Diagnosis, Success) {
  EXPECT_EQ(diagnose(Ending{}, {"CUDA out of memory"}).cause, "success");
  EXPECT_EQ(exit_code_of(Ending{}), 0);
}

TEST(Diagnosis, PlainExit) {
  const Diagnosis diagnosis = diagnose(exited(7), {"step 1", "step 2"});
  EXPECT_EQ(diagnosis.cause, "exit");
  EXPECT_EQ(diagnosis.words, "exit 7");
  EXPECT_FALSE(diagnosis.victim);
  EXPECT_EQ(exit_code_of(exited(7)), 7);
}

TEST(Diagnosis, SegmentationFaultWithCore) {
  Ending ending = killed(SIGSEGV);
  ending.core_dumped = true;
  const Diagnosis diagnosis = diagnose(ending, {});
  EXPECT_EQ(diagnosis.cause, "signal");
  EXPECT_EQ(diagnosis.words, "killed by signal 11, segmentation fault (core dumped)");
  EXPECT_NE(diagnosis.advice.find("--wrap"), std::string::npos);
  EXPECT_EQ(exit_code_of(ending), 139);
}

TEST(Diagnosis, KilledForMemory) {
  Ending ending = killed(SIGKILL);
  ending.out_of_memory_kill = true;
  const Diagnosis diagnosis = diagnose(ending, {});
  EXPECT_EQ(diagnosis.cause, "out_of_memory");
  EXPECT_EQ(diagnosis.words, "killed by signal 9; the kernel killed it because memory ran out");
  EXPECT_EQ(exit_code_of(ending), 137);
}

TEST(Diagnosis, KilledByWhoKnows) {
  const Diagnosis diagnosis = diagnose(killed(SIGKILL), {});
  EXPECT_EQ(diagnosis.words, "killed by signal 9, killed");
  EXPECT_NE(diagnosis.advice.find("dmesg"), std::string::npos);
}

TEST(Diagnosis, SignalsWithAdvice) {
  EXPECT_NE(diagnose(killed(SIGILL), {}).advice.find("ONEDNN_MAX_CPU_ISA"), std::string::npos);
  EXPECT_NE(diagnose(killed(SIGBUS), {}).advice.find("/dev/shm"), std::string::npos);
  EXPECT_NE(diagnose(killed(SIGTERM), {}).advice.find("outside"), std::string::npos);
  EXPECT_NE(diagnose(killed(SIGSYS), {}).advice.find("seccomp"), std::string::npos);
}

void expect_no_option_of_launch(const Diagnosis& diagnosis) {
  for (const Option& option : option_table())
    for (const std::string& name : option.names) {
      if (!name.starts_with("--")) continue;
      EXPECT_EQ(diagnosis.advice.find(name), std::string::npos) << diagnosis.advice;
    }
}

TEST(Diagnosis, ForSpawnNamesNoOptionOfLaunch) {
  for (int signal = 1; signal < SIGRTMIN; ++signal)
    expect_no_option_of_launch(diagnose(killed(signal), {}, Starter::spawn));
  for (const char* line : {"ncclSystemError: x", "Address already in use", "No space left on device", "std::bad_alloc",
                           "x.so: cannot open shared object file", "gloo/transport", "CUDA out of memory", "x"})
    for (const int code : {1, 2, 71, 75, 126})
      expect_no_option_of_launch(diagnose(exited(code), {line}, Starter::spawn));
}

TEST(Diagnosis, EverySignalHasANameAndWords) {
  for (int signal = SIGHUP; signal <= SIGSYS; ++signal) {
    EXPECT_TRUE(signal_name(signal).starts_with("SIG")) << signal;
    EXPECT_NE(signal_words(signal), "unknown signal") << signal;
  }
  EXPECT_EQ(signal_name(SIGSEGV), "SIGSEGV");
  EXPECT_EQ(signal_words(SIGXCPU), "CPU time limit exceeded");
  EXPECT_EQ(signal_name(40), "signal 40");
  EXPECT_EQ(signal_words(40), "real-time signal");
  EXPECT_EQ(signal_words(99), "unknown signal");
}

TEST(Diagnosis, ProgramThatCannotBeStarted) {
  Ending ending = exited(0);
  ending.exec_errno = ENOENT;
  EXPECT_FALSE(ending.success());
  EXPECT_EQ(diagnose(ending, {}).cause, "exec_failed");
  EXPECT_EQ(diagnose(ending, {}).words, "could not be started: No such file or directory");
  EXPECT_EQ(exit_code_of(ending), 127);
  ending.exec_errno = EACCES;
  EXPECT_EQ(exit_code_of(ending), 126);
  EXPECT_NE(diagnose(ending, {}).advice.find("chmod +x"), std::string::npos);
  ending.exec_errno = E2BIG;
  EXPECT_NE(diagnose(ending, {}).advice.find("too long"), std::string::npos);
}

TEST(Diagnosis, AShellsWayToReportASignal) {
  EXPECT_EQ(diagnose(exited(139), {}).words, "exit 139 (as a shell reports signal 11, segmentation fault)");
  EXPECT_EQ(diagnose(exited(255), {}).words, "exit 255");
}

TEST(Diagnosis, OurOwnExitCodes) {
  EXPECT_EQ(diagnose(exited(71), {}).cause, "system");
  EXPECT_EQ(diagnose(exited(2), {}).cause, "usage");
  const Diagnosis peer = diagnose(exited(75), {});
  EXPECT_EQ(peer.cause, "peer");
  EXPECT_TRUE(peer.victim);
  EXPECT_NE(peer.advice.find("another rank"), std::string::npos);
}

TEST(Diagnosis, AVictimStaysOneWhateverItsLogSays) {
  const Diagnosis peer = diagnose(exited(75), {"a:1:2 [0] NCCL WARN socket closed", "ncclRemoteError: gone"});
  EXPECT_EQ(peer.cause, "peer");
  EXPECT_TRUE(peer.victim);
  EXPECT_EQ(peer.evidence.size(), 1u);
}

// --- what the log adds

TEST(Diagnosis, TorchOutOfMemory) {
  expect_finding({"Traceback (most recent call last):",
                  "[rank3]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 3 has a total "
                  "capacity of 79.15 GiB of which 1.23 GiB is free. Process 77 has 77.91 GiB memory in use.",
                  "later words"},
                 "cuda_out_of_memory", "CUDA out of memory on GPU 3: 2.00 GiB asked for, 1.23 GiB free of 79.15 GiB");
}

TEST(Diagnosis, OlderTorchOutOfMemory) {
  expect_finding({"RuntimeError: CUDA out of memory. Tried to allocate 20.00 MiB (GPU 0; 7.79 GiB total capacity; "
                  "6.34 GiB already allocated; 13.06 MiB free; 6.38 GiB reserved in total by PyTorch)"},
                 "cuda_out_of_memory", "CUDA out of memory on GPU 0: 20.00 MiB asked for, 13.06 MiB free of 7.79 GiB");
}

TEST(Diagnosis, PaddleOutOfMemory) {
  expect_finding(
      {"Out of memory error on GPU 1. Cannot allocate 56.000000MB memory on GPU 1, 7.782776GB memory has been "
       "allocated and available memory is only 12.750000MB."},
      "cuda_out_of_memory", "CUDA out of memory on GPU 1: 56.00 MB asked for, 12.75 MB free");
}

TEST(Diagnosis, OutOfMemoryWithoutNumbers) {
  expect_finding({"RuntimeError: CUDA error: out of memory"}, "cuda_out_of_memory", "CUDA out of memory");
  expect_finding({"CUDA out of memory. Tried to allocate"}, "cuda_out_of_memory", "CUDA out of memory");
}

TEST(Diagnosis, OutOfMemoryInAnUncaughtCppException) {
  const Diagnosis diagnosis = diagnose(
      killed(SIGABRT), {"terminate called after throwing an instance of 'c10::OutOfMemoryError'",
                        "  what():  CUDA out of memory. Tried to allocate 1.00 GiB. GPU 0 has a total capacity "
                        "of 10.00 GiB of which 5.00 MiB is free."});
  EXPECT_EQ(diagnosis.cause, "cuda_out_of_memory");
  EXPECT_EQ(diagnosis.words,
            "killed by signal 6, aborted: CUDA out of memory on GPU 0: 1.00 GiB asked for, 5.00 MiB free of 10.00 GiB");
}

TEST(Diagnosis, HostMemory) {
  expect_finding({"numpy.core._exceptions.MemoryError: Unable to allocate 8 GiB"}, "out_of_memory",
                 "the host's memory ran out: numpy.core._exceptions.MemoryError: Unable to allocate 8 GiB");
}

TEST(Diagnosis, NcclErrorWithItsWarnings) {
  const Diagnosis diagnosis =
      diagnose(exited(1),
               {"node08:27106:27302 [0] include/shm.h:27 NCCL WARN Call to shm_open failed : Permission denied",
                "torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:1333, unhandled system error",
                "ncclSystemError: System call (e.g. socket, malloc) or external library call failed"});
  EXPECT_EQ(diagnosis.cause, "nccl");
  EXPECT_EQ(diagnosis.words,
            "exit 1: NCCL error: ncclSystemError: System call (e.g. socket, malloc) or external library call failed");
  ASSERT_EQ(diagnosis.evidence.size(), 1u);
  EXPECT_NE(diagnosis.evidence[0].find("shm_open failed"), std::string::npos);
  EXPECT_NE(diagnosis.advice.find("NCCL_DEBUG=INFO"), std::string::npos);
  EXPECT_FALSE(diagnosis.victim);
}

TEST(Diagnosis, NcclRemoteErrorIsAVictims) {
  EXPECT_TRUE(diagnose(exited(1), {"ncclRemoteError: A call failed possibly due to a network error"}).victim);
}

TEST(Diagnosis, NcclWarningsAloneExplainOnlyWhatNothingElseDoes) {
  EXPECT_EQ(diagnose(exited(1), {"x NCCL WARN odd", "ValueError: no"}).cause, "python_error");
  EXPECT_EQ(diagnose(exited(1), {"x NCCL WARN odd"}).cause, "nccl");
  EXPECT_EQ(diagnose(exited(1), Lines(50, "x NCCL WARN odd")).evidence.size(), 8u);
}

TEST(Diagnosis, PortInUse) {
  const Diagnosis diagnosis =
      diagnose(exited(1), {"The server socket has failed to bind to [::]:29500 (errno: 98 - Address already in use)."});
  EXPECT_EQ(diagnosis.cause, "port_in_use");
  EXPECT_NE(diagnosis.words.find("29500"), std::string::npos);
  EXPECT_NE(diagnosis.advice.find("ss -ltnp"), std::string::npos);
}

TEST(Diagnosis, FullDiskMissingLibraryLostPeer) {
  EXPECT_EQ(diagnose(exited(1), {"OSError: [Errno 28] No space left on device"}).cause, "disk_full");
  EXPECT_EQ(diagnose(exited(127), {"./train: error while loading shared libraries: libx.so: cannot open shared object "
                                   "file: No such file or directory"})
                .cause,
            "missing_library");
  const Diagnosis peer = diagnose(
      exited(1),
      {"RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:598] Connection closed by peer [::1]:2"});
  EXPECT_EQ(peer.cause, "peer");
  EXPECT_TRUE(peer.victim);
}

TEST(Diagnosis, ADownloadThatBreaksIsNoLostPeer) {
  EXPECT_EQ(diagnose(exited(1), {"ConnectionResetError: [Errno 104] Connection reset by peer"}).cause, "python_error");
}

TEST(Diagnosis, MissingModule) {
  const Lines lines = {"Traceback (most recent call last):", "  File \"a.py\", line 1, in <module>",
                       "    import paddle", "ModuleNotFoundError: No module named 'paddle'"};
  expect_finding(lines, "import_error", "ModuleNotFoundError: No module named 'paddle'");
  EXPECT_NE(diagnose(exited(1), lines).advice.find("PYTHONPATH"), std::string::npos);
}

TEST(Diagnosis, TheLastTracebackCounts) {
  expect_finding({"Traceback (most recent call last):", "  File \"a.py\", line 1", "KeyError: 'a'", "",
                  "During handling of the above exception, another exception occurred:", "",
                  "Traceback (most recent call last):", "  File \"a.py\", line 3", "mylib.Trouble: worse", "bye"},
                 "python_error", "mylib.Trouble: worse");
}

TEST(Diagnosis, TorchsRankPrefixIsTakenOff) {
  expect_finding({"[rank1]: Traceback (most recent call last):", "[rank1]:   File \"a.py\", line 1",
                  "[rank1]: ValueError: bad shape"},
                 "python_error", "ValueError: bad shape");
}

TEST(Diagnosis, TracebackWhoseStartIsFurtherUp) {
  expect_finding({"    return f(x)", "ValueError: bad"}, "python_error", "ValueError: bad");
  EXPECT_EQ(diagnose(exited(1), {"an Error: of words", "loss: 3", "2 Errors"}).cause, "exit");
}

TEST(Diagnosis, UncaughtCppException) {
  const Diagnosis diagnosis = diagnose(
      killed(SIGABRT),
      {"epoch 1", "terminate called after throwing an instance of 'std::runtime_error'", "  what():  bad batch 7"});
  EXPECT_EQ(diagnosis.cause, "cpp_exception");
  EXPECT_EQ(diagnosis.words, "killed by signal 6, aborted: uncaught std::runtime_error: bad batch 7");
}

TEST(Diagnosis, TerminateWithoutException) {
  EXPECT_EQ(diagnose(killed(SIGABRT), {"terminate called without an active exception"}).words,
            "killed by signal 6, aborted: terminate called without an active exception");
}

TEST(Diagnosis, OtherSignalsAreNotExplainedByTheLog) {
  EXPECT_EQ(diagnose(killed(SIGSEGV), {"ValueError: caught and printed"}).cause, "signal");
}

TEST(Diagnosis, WordsAreShortAndPrintable) {
  const Diagnosis diagnosis = diagnose(exited(1), {"ValueError: \x1b[31m" + std::string(5000, 'x')});
  EXPECT_LT(diagnosis.words.size(), 400u);
  EXPECT_EQ(diagnosis.words.find('\x1b'), std::string::npos);
}

}  // namespace
}  // namespace trireme::launch
