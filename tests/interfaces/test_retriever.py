from conftest import Call
from langchain_core.runnables import RunnableLambda

from langmem_recall import LocalStore, RecallPolicy, RecallStore
from langmem_recall.interfaces.retriever import RecallRetriever

ADA, TEAM = ("memories", "ada"), ("team", "shop")


def stored() -> RecallStore:
    store = RecallStore(LocalStore())
    store.remember(ADA, "I always book an aisle seat on flights", key="seat", source="user_stated")
    store.remember(TEAM, "Flights are booked through Acme", key="acme", source="tool_verified")
    return store


def test_a_chain_gets_what_is_recalled_as_documents(call: Call) -> None:
    retriever = RecallRetriever(store=stored(), namespace=ADA)
    chain = retriever | RunnableLambda(lambda documents: [each.page_content for each in documents])
    words = "Which seat on my flights?"
    (document,) = call(retriever, "invoke", words)
    assert document.page_content == "I always book an aisle seat on flights"
    assert document.id == "memories/ada/seat"
    assert document.metadata["source"] == "user_stated"
    assert 0.5 < document.metadata["relevance"] <= 1
    assert call(chain, "invoke", words) == [document.page_content]


def test_nothing_is_an_answer_and_reading_counts_as_use(call: Call) -> None:
    store = stored()
    retriever = RecallRetriever(store=store, namespace=ADA)
    assert call(retriever, "invoke", "Who composed Tosca?") == []
    call(retriever, "invoke", "Which seat on my flights?")
    store.flush()
    assert [usage.uses for usage in store.inner.read_usage([(ADA, "seat")])] == [1]


def test_several_namespaces_and_a_policy_of_its_own(call: Call) -> None:
    policy = RecallPolicy.default(top_k=1)
    words = "Which seat on my flights, and who are flights booked through?"
    both = RecallRetriever(store=stored(), namespace=(ADA, TEAM))
    assert {each.metadata["key"] for each in call(both, "invoke", words)} == {"seat", "acme"}
    one = RecallRetriever(store=stored(), namespace=(ADA, TEAM), policy=policy)
    assert len(call(one, "invoke", words)) == 1
