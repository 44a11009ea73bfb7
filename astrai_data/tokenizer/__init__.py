from astrai_data.tokenizer.backends import SPECIAL_TOKENS_CHOICES
from astrai_data.tokenizer.chat import EncodedChat
from astrai_data.tokenizer.chat_template import ChatTemplate
from astrai_data.tokenizer.conversation import ChatRefusal
from astrai_data.tokenizer.files import find_directory
from astrai_data.tokenizer.template_set import TokenizerStateError
from astrai_data.tokenizer.tokenizer import Tokenizer
from astrai_data.tokenizer.training import train_tokenizer
from astrai_data.tokenizer.verification import check_backend, choose_backend

__all__ = [
    "SPECIAL_TOKENS_CHOICES",
    "ChatRefusal",
    "ChatTemplate",
    "EncodedChat",
    "Tokenizer",
    "TokenizerStateError",
    "check_backend",
    "choose_backend",
    "find_directory",
    "train_tokenizer",
]
