"""`trireme launch` under mpirun, and in pods as Kubernetes and Kubeflow start them: the files of docs/clusters.md."""

import re
import shlex

import shown
from machines import MachineCase, main
from trireme_test import TRIREME, Case, read

SAY = 'echo "rank $RANK of $WORLD_SIZE on node $GROUP_RANK"'
DOMAIN = "default.svc.cluster.local"


def said(*results):
    return sorted(line for result in results for line in re.findall(r"rank \d of \d on node \d", result.out))


class Mpirun(Case):
    def test_several_launchers_on_a_machine(self):
        result = self.start_command(["mpirun", "-n", "2", TRIREME, "launch", "true"], env=self.mpi_environment()).wait()
        self.assert_ends(result, 2)
        self.assert_says(result, "mpirun has started 2 launchers on this machine.*mpirun -N 1")


class MpirunOnTwo(MachineCase):
    names = ("node07", "node08")  # those of the page

    def test_the_command_that_the_page_shows(self):
        """mpirun reaches node08 by a command in ssh's place."""
        self.script("train", f"{SAY} >said.$RANK")
        remote = self.script("remote", "shift\nexec " + " ".join(map(str, self.node08.command(self.folder))) + ' sh -c "$*"')
        env = {**self.mpi_environment(), "PATH": shown.PATH, "OMPI_MCA_plm_rsh_agent": remote}
        words = shlex.split(shown.mpirun_command())
        self.assertEqual(words[:3], ["mpirun", "--host", ",".join(self.names)])
        result = self.start_command(self.node07.command(self.folder, *words), env=env).wait(60)
        self.assert_ends(result, 0)
        lines = [read(self.folder / f"said.{rank}").strip() for rank in range(4)]
        self.assertEqual(lines, [f"rank {rank} of 4 on node {rank // 2}" for rank in range(4)], result)


class OtherMpi(MachineCase):
    """The variables of MPICH's and Intel MPI's mpirun, which do not say where rank 0 is."""

    def start_ranks(self, *options):
        return [self.start_on(machine, *options, "--tee", "all", "sh", "-c", SAY,
                              env={"PMI_RANK": rank, "PMI_SIZE": 2, "MPI_LOCALRANKID": 0, "MPI_LOCALNRANKS": 1})
                for rank, machine in enumerate(self.machines)]

    def test_with_a_place_to_meet(self):
        results = [job.wait(30) for job in self.start_ranks("--master", f"{self.alpha.address}:7100", "-n", 2)]
        for result in results:
            self.assert_ends(result, 0)
        self.assertEqual(said(*results), [f"rank {rank} of 4 on node {rank // 2}" for rank in range(4)], results[0])
        self.assert_says(results[1], "PMI_RANK=1 is used as --rank")

    def test_without_one(self):
        """The second rank cannot know where the first is, and the message says what to give."""
        second = self.start_ranks("--join_timeout", 2)[1].wait(30)
        self.assert_usage(second, "--rank 1 needs the coordinator's address; add --master")


class PodCase(MachineCase):
    """A machine is a pod. It knows its own names; the others' are in the cluster's name server only with their domain."""

    def start_pod(self, machine, text, env, names=""):
        self.script(f"{machine.name}/train", f"{SAY} >../said.$RANK")
        if names:
            machine.run("mount", "--bind", self.hosts_file(machine, names), "/etc/hosts")
        words = machine.command(self.folder_of(machine), *shown.command(text))
        return self.start_command(words, env={"PATH": shown.PATH, "HOSTNAME": machine.name, **env})

    def hosts_file(self, own, subdomain):
        hosts = self.folder / f"hosts.{own.name}"
        lines = [f"{machine.address} {machine.name}.{subdomain}.{DOMAIN} {machine.name if machine is own else ''}"
                 for machine in self.machines]
        hosts.write_text("\n".join(["127.0.0.1 localhost", *lines, ""]))
        return hosts

    def assert_all_say(self, jobs, per_node):
        for job in jobs:
            self.assert_ends(job.wait(30), 0)
        expected = [f"rank {rank} of {per_node * len(jobs)} on node {rank // per_node}"
                    for rank in range(per_node * len(jobs))]
        self.assertEqual([read(self.folder / f"said.{rank}").strip() for rank in range(len(expected))], expected,
                         self.consoles())


class IndexedJob(PodCase):
    names = tuple(f"{shown.field(shown.indexed_job(), 'name')}-{index}" for index in range(2))

    def setUp(self):
        super().setUp()
        self.job = shown.indexed_job()
        self.assertEqual(shown.field(self.job, "completionMode"), "Indexed")
        self.assertEqual(shown.field(self.job, "completions"), str(len(self.machines)))

    def start_pods(self, text):
        return [self.start_pod(machine, text, {"JOB_COMPLETION_INDEX": index}, shown.field(text, "subdomain"))
                for index, machine in enumerate(self.machines)]

    def test_the_file_that_the_page_shows(self):
        self.assert_all_say(self.start_pods(self.job), per_node=1)

    def test_without_a_number(self):
        for job in self.start_pods(self.job.replace('--nnodes, "2", ', "")):
            result = job.wait(30)
            self.assert_ends(result, 0)
            self.assert_says(result, "pod of an indexed Job.*give --nnodes")


class PyTorchJob(PodCase):
    names = ("train-master-0", "train-worker-0")

    def test_the_file_that_the_page_shows(self):
        text = shown.pytorch_job()
        per_node, name = int(shown.field(text, "nprocPerNode")), shown.field(text, "name")
        groups = {kind: shown.section(text, kind) for kind in ("Master", "Worker")}
        pods = [(f"{name}-{kind.lower()}-{index}", group) for kind, group in groups.items()
                for index in range(int(shown.field(group, "replicas")))]
        self.assertEqual(tuple(pod for pod, _ in pods), self.names)
        jobs = [self.start_pod(machine, group, self.variables(rank, len(pods), per_node))
                for rank, (machine, (_, group)) in enumerate(zip(self.machines, pods))]
        self.assert_all_say(jobs, per_node)

    def variables(self, rank, pods, per_node):
        """As Kubeflow sets them."""
        port = 23456
        return {"PET_NNODES": pods, "PET_NPROC_PER_NODE": per_node, "PET_NODE_RANK": rank, "PET_MASTER_ADDR": self.names[0],
                "PET_MASTER_PORT": port, "MASTER_ADDR": self.names[0], "MASTER_PORT": port, "RANK": rank,
                "WORLD_SIZE": pods * per_node, "PYTHONUNBUFFERED": 1}


if __name__ == "__main__":
    main()
