// Carries the note of a program that trains with Trireme. Joins the job when its argument asks for it, else ends at once.
#include <cstring>

#include "trireme/core/training_note.h"
#include "trireme/store/job.h"

[[gnu::section(".note.trireme"), gnu::used]] const trireme::TrainingNote kNote{};

int main(int argc, char** argv) {
  if (argc > 1 && std::strcmp(argv[1], "join") == 0) trireme::connect_job();
}
