"""One optimizer step's gradient, from as many micro-batches as it has.

The loss is the sum over all trained labels of the step, divided by their number. Labels are counted first, so each
micro-batch can be scaled by the number of the whole step, and the split into micro-batches changes nothing but
rounding: labels 1 and 3 with losses (4) and (1, 1, 1) give 7 / 4, not (4 + 1) / 2.
"""

from collections.abc import Callable, Iterable, Sequence

import torch

from astrai_train.device import Precision
from astrai_train.models import Transformer
from astrai_train.strategies import NextToken, TokenBatch


def accumulate_gradient(
    model: Transformer,
    strategy: NextToken,
    batches: Sequence[TokenBatch],
    precision: Precision,
    check: Callable[[], None] = lambda: None,
) -> torch.Tensor:
    """Add the gradient of the step's loss to the parameters' `grad`.

    Args:
        model: whose gradient.
        strategy: the loss.
        batches: of the step.
        precision: device and dtype.
        check: called before each batch; what it raises ends the step in its middle.

    Returns:
        The loss, a scalar on the device: the mean over all labels; 0 where there is none, and then no gradient.
    """
    num_labels = sum(batch.num_labels for batch in batches)
    total = torch.zeros((), dtype=torch.float64 if precision.device.type == "cpu" else torch.float32)
    total = total.to(precision.device)
    for batch in batches:
        check()
        if batch.num_labels == 0:
            continue
        with precision.autocast():
            loss = strategy.loss_sum(model, batch.to(precision.device)) / num_labels
        loss.backward()
        total += loss.detach()
    return total


@torch.no_grad()
def mean_loss(
    model: Transformer,
    strategy: NextToken,
    batches: Iterable[TokenBatch],
    precision: Precision,
    max_tokens: int = 0,
) -> float | None:
    """The mean loss over all labels of some batches, by the model in evaluation mode; None where there is no label.

    Of the batches the first are taken, until they have `max_tokens` together; 0: all.
    """
    was_training = model.training
    model.eval()
    total, num_labels, num_tokens = 0.0, 0, 0
    for batch in batches:
        if batch.num_labels:
            with precision.autocast():
                total += strategy.loss_sum(model, batch.to(precision.device)).item()
        num_labels += batch.num_labels
        num_tokens += batch.num_tokens
        if 0 < max_tokens <= num_tokens:
            break
    model.train(was_training)
    return total / num_labels if num_labels else None
