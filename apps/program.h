// What the programs `trireme-train`, `-eval` and `-export` share: their command line, where their log goes, and how
// errors become words and exit codes.
//
//   return apps::run({.name = "train", .about = kAbout, .notes = kNotes, .run = train}, argc, argv);   // main()
#pragma once

#include <string>
#include <vector>

#include "trireme/config/train_config.h"

namespace trireme::apps {

struct Options {
  std::string config;                  ///< -c
  std::vector<std::string> overrides;  ///< -o
  std::string resume;                  ///< --resume
  std::vector<std::string> words;      ///< all of the command line, behind the program's name
};

struct Program {
  const char* name;     ///< "train"
  const char* about;    ///< what it does, for --help
  const char* notes;    ///< behind the options: keys, examples
  bool trains = false;  ///< knows --resume, and keeps its log in <output_dir>/<Arch>/<name>.log; others write no log
  bool reads_batches = true;
  int (*run)(const Options& options, const config::TrainConfig& config);  ///< returns the exit code
};

int run(const Program& program, int argc, char** argv);

}  // namespace trireme::apps
