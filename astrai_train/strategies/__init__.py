"""What is learnt from a batch: labels and loss."""

from astrai_train.strategies.linear_cross_entropy import linear_cross_entropy
from astrai_train.strategies.next_token import NextToken, TokenBatch

__all__ = ["NextToken", "TokenBatch", "linear_cross_entropy"]
