#include "trireme/launch/clusters/cluster.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <map>

#include "trireme/core/error.h"
#include "trireme/core/file.h"
#include "trireme/launch/options/options.h"

namespace trireme::launch {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Pair;
using testing::ThrowsMessage;

const Environment kSecondOfThree = {{"SLURM_STEP_ID", "0"},
                                    {"SLURM_JOB_ID", "17"},
                                    {"SLURM_PROCID", "1"},
                                    {"SLURM_NODEID", "1"},
                                    {"SLURM_LOCALID", "0"},
                                    {"SLURM_STEP_NUM_TASKS", "3"},
                                    {"SLURM_STEP_NUM_NODES", "3"},
                                    {"SLURM_STEP_TASKS_PER_NODE", "1(x3)"},
                                    {"SLURM_STEP_NODELIST", "gpu[07-09]"}};
const Environment kMpirun = {
    {"OMPI_COMM_WORLD_RANK", "1"},
    {"OMPI_COMM_WORLD_SIZE", "2"},
    {"OMPI_COMM_WORLD_LOCAL_RANK", "0"},
    {"OMPI_COMM_WORLD_LOCAL_SIZE", "1"},
    {"PMIX_NAMESPACE", "505675777"},
    {"OMPI_MCA_orte_hnp_uri", "505675776.0;tcp://192.0.2.2,10.0.0.1:51267;tcp6://[fd00::2]:39369"}};
const Environment kPod = {{"JOB_COMPLETION_INDEX", "3"}, {"HOSTNAME", "train-run-3"}};

Environment with(Environment variables, const std::string& name, const std::string& text) {
  variables.emplace_back(name, text);
  return variables;
}

std::map<std::string, std::string> texts(const Environment& variables) {
  std::map<std::string, std::string> found;
  for (const auto& [option, value] : cluster_options(variables)) found[option] = value.text;
  return found;
}

Request parse(std::vector<std::string> words, const Environment& variables) {
  words.push_back("./train");
  return parse_launch(words, variables);
}

TEST(Cluster, FirstHostOfSlurmsLists) {
  EXPECT_EQ(first_host("gpu[07-09]"), "gpu07");
  EXPECT_EQ(first_host("gpu[7,9-12],login"), "gpu7");
  EXPECT_EQ(first_host("a,b"), "a");
  EXPECT_EQ(first_host("rack[1-2]node[03-04].site"), "rack1node03.site");
  EXPECT_EQ(first_host("gpu[07"), "gpu07");
  EXPECT_EQ(first_host(""), "");
}

TEST(Cluster, ATaskOfSlurmKnowsItsPlace) {
  const auto found = texts(kSecondOfThree);
  EXPECT_THAT(found,
              ElementsAre(Pair("--master", testing::StartsWith("gpu07:")), Pair("--nnodes", "3"), Pair("--rank", "1")));
  const Request request = parse({"-n", "2"}, kSecondOfThree);
  EXPECT_EQ(request.nodes, 3);
  EXPECT_EQ(request.node_rank, 1);
  EXPECT_EQ(request.master->host, "gpu07");
  EXPECT_EQ(request.processes, "2");
}

TEST(Cluster, JobsOnOneMachineMeetAtTheirOwnPorts) {
  const auto master = [](const std::string& job) {
    return texts(with(kSecondOfThree, "SLURM_JOB_ID", job))["--master"];
  };
  EXPECT_NE(master("17"), master("18"));
  EXPECT_EQ(master("17"), master("17"));
}

TEST(Cluster, LaunchersOfMpirunMeetWhereItRuns) {
  const Request request = parse({}, kMpirun);
  EXPECT_EQ(request.nodes, 2);
  EXPECT_EQ(request.node_rank, 1);
  EXPECT_EQ(request.master->host, "192.0.2.2");
}

TEST(Cluster, PodsMeetAtPodZero) {
  const Request request = parse({"--nnodes", "4"}, kPod);
  EXPECT_EQ(request.node_rank, 3);
  EXPECT_EQ(request.master->host, "train-run-0");
  EXPECT_FALSE(parse({}, kPod).master) << "how many pods there are is not known";
}

TEST(Cluster, APyTorchJobSpeaksTorchrun) {
  const Request request = parse({}, {{"PET_NNODES", "2"},
                                     {"PET_NODE_RANK", "1"},
                                     {"PET_MASTER_ADDR", "job-master-0"},
                                     {"PET_MASTER_PORT", "23456"},
                                     {"PET_NPROC_PER_NODE", "2"}});
  EXPECT_EQ(request.nodes, 2);
  EXPECT_EQ(request.node_rank, 1);
  EXPECT_EQ(request.master->host, "job-master-0");
  EXPECT_EQ(request.master->port, 23456);
  EXPECT_EQ(request.processes, "2");
}

TEST(Cluster, WhatTheUserSaysComesFirst) {
  EXPECT_EQ(parse({"--nnodes", "1"}, kSecondOfThree).nodes, 1);
  EXPECT_EQ(parse({"--standalone"}, kSecondOfThree).nodes, 1);
  EXPECT_EQ(parse({"--master", "other:1"}, kSecondOfThree).master->host, "other");
  EXPECT_EQ(parse({"--master", "other:1"}, kSecondOfThree).nodes, 3);
  EXPECT_EQ(parse({}, with(kSecondOfThree, "PET_MASTER_ADDR", "other")).master->host, "other");
  EXPECT_FALSE(parse({"--ips", "10.0.0.1,10.0.0.2"}, kSecondOfThree).master);
  EXPECT_EQ(parse({}, with(kSecondOfThree, "TRIREME_JOB_ID", "default")).nodes, 1) << "a launcher in a worker";
}

TEST(Cluster, AJobOfOneMachineNeedsNothing) {
  EXPECT_THAT(cluster_options({}), IsEmpty());
  Environment alone = kSecondOfThree;
  for (const char* name : {"SLURM_STEP_NUM_TASKS", "SLURM_STEP_NUM_NODES", "SLURM_STEP_TASKS_PER_NODE"})
    alone = with(alone, name, "1");
  for (const char* name : {"SLURM_PROCID", "SLURM_NODEID"}) alone = with(alone, name, "0");
  EXPECT_THAT(cluster_options(alone), IsEmpty());
  EXPECT_THAT(cluster_options({{"SLURM_JOB_ID", "17"}, {"SLURM_NNODES", "2"}}), IsEmpty()) << "a batch script";
}

TEST(Cluster, SeveralLaunchersOnAMachineAreRefused) {
  const Environment crowded =
      with(with(kSecondOfThree, "SLURM_STEP_TASKS_PER_NODE", "1(x1),2"), "SLURM_STEP_NUM_NODES", "2");
  EXPECT_THAT([&] { cluster_options(crowded); },
              ThrowsMessage<UsageError>(HasSubstr("srun has started 2 launchers on this machine")));
  EXPECT_THAT([&] { cluster_options(with(kMpirun, "OMPI_COMM_WORLD_LOCAL_SIZE", "2")); },
              ThrowsMessage<UsageError>(HasSubstr("mpirun -N 1")));
  EXPECT_EQ(parse({"--standalone"}, crowded).nodes, 1);
}

// A scontrol of our own in PATH.
class ScontrolTest : public testing::Test {
 protected:
  std::string address_with(const std::string& script, mode_t mode = 0755) const {
    const std::string file = (folder_.path() / "scontrol").string();
    write_file_atomically(file, script);
    ::chmod(file.c_str(), mode);
    return cluster_address(kHost, {{"SLURM_JOB_ID", "17"}, {"PATH", folder_.path().string() + ":/usr/bin:/bin"}});
  }
  static constexpr const char* kHost = "no-such-host.invalid";
  const TempDir folder_;
};

TEST_F(ScontrolTest, KnowsTheAddressOfANode) {
  EXPECT_EQ(address_with("#!/bin/sh\necho NodeName=d1 NodeAddr=10.0.0.1 NodeHostName=d1\n"), "10.0.0.1");
}

TEST_F(ScontrolTest, ItsOutputIsBounded) {
  EXPECT_EQ(address_with("#!/bin/sh\nhead -c 1000000 /dev/zero | tr '\\0' x\necho ' NodeAddr=10.0.0.1 '\n"), kHost);
}

TEST_F(ScontrolTest, OneThatCannotBeStartedSaysNothing) {
  EXPECT_EQ(address_with("", 0644), kHost);
}

}  // namespace
}  // namespace trireme::launch
