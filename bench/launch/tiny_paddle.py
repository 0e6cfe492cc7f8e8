"""As tiny_job.cc, by PaddlePaddle: two linear layers, ten steps, DataParallel."""

import paddle
import paddle.distributed as dist

dist.init_parallel_env()
paddle.seed(dist.get_rank())
model = paddle.DataParallel(paddle.nn.Sequential(paddle.nn.Linear(10, 10), paddle.nn.Linear(10, 1)))
optimizer = paddle.optimizer.SGD(learning_rate=0.01, parameters=model.parameters())
for _ in range(10):
    paddle.nn.functional.mse_loss(model(paddle.randn([10, 10])), paddle.randn([10, 1])).backward()
    optimizer.step()
    optimizer.clear_grad()
