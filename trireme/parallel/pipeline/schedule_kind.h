// How a pipeline's ranks take turns.
//
// The bubble is the share of the time in which a rank waits, when a stage takes 1 for a forward and 2 for a backward: for P
// ranks, M micro-batches, V chunks (stages of one rank).
//
//   schedule        bubble                                   activations kept by rank r
//   fill_drain      (P-1) / (M+P-1)                          M
//   one_f_one_b     (P-1) / (M+P-1)                          P-r, at most M
//   interleaved     (P-1) / (V M + P-1), when M >= P         (V-1) G + 2 (P-1-r) + 1, at most V M; each of a chunk
//   zero_bubble     (P-1) / (3 M + P-1), when M >= P         P, at most M
//
// G is the size of the largest round: interleaved takes the micro-batches in rounds of at least P, as equal as can be, so
// that any M will do. zero_bubble is ZB-H1: a backward is split into the gradient of the stage's input, which the stage
// before waits for, and that of its weights, which fills the gaps; each takes 1. With M < P the ranks wait longer.
#pragma once

namespace trireme {

enum class Schedule {
  fill_drain,   ///< all forwards, then all backwards: GPipe
  one_f_one_b,  ///< each backward as soon as it can be: fewer activations are kept
  interleaved,  ///< the same with several stages on each rank: a shorter bubble, more messages
  zero_bubble,  ///< gradients of weights fill the gaps
};

}  // namespace trireme
