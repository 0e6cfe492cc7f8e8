"""A stock Paddle training script: init_parallel_env, DataParallel, a few steps."""

import paddle
import paddle.distributed as dist


def main():
    dist.init_parallel_env()
    rank, size = dist.get_rank(), dist.get_world_size()

    paddle.seed(rank)  # different weights and data on every rank; DataParallel must make the weights equal
    model = paddle.DataParallel(
        paddle.nn.Sequential(paddle.nn.Linear(8, 16), paddle.nn.ReLU(), paddle.nn.Linear(16, 1))
    )
    optimizer = paddle.optimizer.SGD(learning_rate=0.1, parameters=model.parameters())
    for _ in range(5):
        loss = paddle.nn.functional.mse_loss(model(paddle.randn([4, 8])), paddle.randn([4, 1]))
        loss.backward()
        optimizer.step()
        optimizer.clear_grad()

    mine = paddle.concat([parameter.flatten() for parameter in model.parameters()]).detach()
    everyone = []
    dist.all_gather(everyone, mine)
    assert len(everyone) == size and all(bool((mine == other).all()) for other in everyone), "parameters differ"
    print(f"rank {rank} of {size}: parameters are equal, sum {float(mine.sum()):.6f}", flush=True)


if __name__ == "__main__":
    main()
