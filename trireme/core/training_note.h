// An ELF note in every program that trains with Trireme. The launcher looks for it when a job has ended and no rank has
// joined it: other programs (shells, Python) need not join.
//
//   [[gnu::section(".note.trireme"), gnu::used]] const TrainingNote kNote{};    // in the source of what training needs
#pragma once

#include <cstdint>

namespace trireme {

/// As the kernel and the linker expect a note: the sizes of the name and of the text, the type, the name.
struct TrainingNote {
  uint32_t name_size = 8;
  uint32_t text_size = 0;
  uint32_t type = 1;
  char name[8] = "Trireme";
};

}  // namespace trireme
