// Is this machine fit for a job?
#pragma once

namespace trireme::cli {

/// Prints a line for each thing looked at; 1 when one of them is a problem, else 0.
int check_machine();

}  // namespace trireme::cli
