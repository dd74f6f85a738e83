"""Models by the names that LangChain gives them: `openai:text-embedding-3-small`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from langmem_recall.errors import ConfigurationError, MissingExtraError

if TYPE_CHECKING:
    from langchain_core.embeddings import Embeddings
    from langchain_core.language_models import BaseChatModel

# Texts go out as they are: cut into tokens first, they would need a tokenizer from the network and
# be refused by servers that only speak OpenAI's protocol.
_RAW_TEXTS: dict[str, Any] = {"check_embedding_ctx_length": False}
_SETTINGS = {"openai": _RAW_TEXTS, "azure_openai": _RAW_TEXTS}


def named_embeddings(name: str) -> Embeddings:
    """The embedder of a name, through LangChain's `init_embeddings`; wordllama and minilm are ours.

    Keys and addresses are the provider's own environment variables, such as `OPENAI_API_KEY`.
    """
    if name in ("wordllama", "minilm"):
        from langmem_recall.embeddings import LocalEmbeddings

        return LocalEmbeddings(name)

    with _explained("embedder", name, "openai:text-embedding-3-small"):
        from langchain.embeddings import init_embeddings

        return init_embeddings(name, **_SETTINGS.get(name.partition(":")[0], {}))


def named_chat_model(name: str) -> BaseChatModel:
    """The chat model of a name, through LangChain's `init_chat_model`."""
    with _explained("chat model", name, "openai:gpt-4.1-mini"):
        from langchain.chat_models import init_chat_model

        return init_chat_model(name)


@contextmanager
def _explained(kind: str, name: str, example: str) -> Iterator[None]:
    """Errors within say what to install, or how to name a model."""
    try:
        yield
    except ImportError as error:
        missing = getattr(error.__cause__ or error, "name", None) or "langchain"
        package = missing.partition(".")[0].replace("_", "-")
        raise MissingExtraError(
            f"The {kind} {name} needs the package {package}, which is not installed. Run "
            f"pip install {package}."
        ) from error
    except Exception as error:
        reason = str(error).strip().partition("\n")[0].rstrip(".")
        raise ConfigurationError(
            f"The {kind} {name!r:.80} cannot be had ({type(error).__name__}: {reason}). Name it "
            f"with its provider, as in {example}, and set the key that the provider asks for."
        ) from error
