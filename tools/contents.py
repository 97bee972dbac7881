"""What stands where in the book: the reading path, what goes beside it, the rooms of the appendix, and words to search by.

Pages are named by their place below nbs/, without .ipynb. `docs.py` makes the navigation of it; `tests/test_book.py` checks that every page is there once.
"""

# the path: (its part, [(page, what one can say afterwards)]); 20 chapters, in this order
PATH = [
    ("A first turn", [
        ("walkthroughs/1_hybrid", "Why an assistant recalls one old message and not another."),
        ("turn/02_stages", "What every design does with a message: read, recall, prompt, answer, check, learn, record."),
    ]),
    ("Search", [
        ("search/01_bm25", "Why a rare word counts more than a common one, and how much more."),
        ("search/02_vectors", "When comparing with every vector is fast enough, and what an approximate index may miss."),
        ("search/03_fusion", "How two rankings become one: by score (the default, a weighted mean of scaled scores) or by rank (RRF), and which is better."),
    ]),
    ("Prompt and answer", [
        ("turn/01_prompt", "Which pieces go into a prompt of limited length, and which are left out."),
        ("hybrid/03_fallback", "How it decides between your messages, documents and “I don't know”, and how the threshold is chosen."),
        ("answer/02_from_memory", "How it decides whether you ever told it, and quotes the answer from your own messages, without a language model."),
    ]),
    ("What is kept, and what is forgotten", [
        ("walkthroughs/2_malp", "Why one note stays, and another is removed after some rounds."),
        ("reading/07_facts", "Which parts of a message are remembered, and what a new statement does to an old one."),
        ("malp/01_dpem", "How notes move between working, short-term and long-term memory."),
        ("store/05_erase", "What `forget` deletes and what may stay; why a deleted row is still on the disk, and how its bytes are removed."),
        ("malp/11_personalize", "Which numbers LoRA trains for one user and how many (230,400); what they learn, and what they don't."),
    ]),
    ("A memory that many share", [
        ("walkthroughs/3_mark", "How one person's correction reaches everybody, and what a lie does."),
        ("mark/01_scoring", "How use, newness, similarity and feedback become one score."),
        ("mark/07_conflict_resolution", "Who is believed when people contradict each other."),
    ]),
    ("Recommendation", [
        ("walkthroughs/4_map", "How remarks in a chat become ratings, and ratings predictions."),
        ("maprec/08_own_ratings", "How an item's facts and a user's own ratings become predicted stars, by the formula that the assistant uses; the paper asks a language model."),
    ]),
    ("Your own memory", [
        ("03_generative_agents", "How recency, importance and relevance make a whole design."),
        ("walkthroughs/8_own_memory", "A design of your own that passes the tests every design must pass."),
    ]),
]
CHAPTERS = [page for _, chapters in PATH for page, _ in chapters]

BESIDE = ["walkthroughs/6_glossary", "walkthroughs/5_compare", "walkthroughs/7_teaching", "experiments/02_gallery"]

ROOMS = {  # folder: its title, and what stands there; "" holds the notebooks that stand in no folder
    "turn": ("One turn", "Every design answers a message in the same stages: read, recall, prompt, answer, check, learn, record. "
             "Here are the engine that runs them, the stored trace, the contract, and how an assistant is opened by its name."),
    "reading": ("The reader", "One small model reads what users write: what a message does, which titles it rates, what a reply corrects, "
                "and what a new statement does to an old one. Others, for titles, replies and the gate, began with it and learned from many more writers."),
    "answer": ("Answers", "The messages that hold the answer are found, read, dated and quoted. Emergencies and dangers come first. "
               "The language model writes only where nothing is known."),
    "models": ("Models", "Language models and embedders: in this process, behind a server, or by name."),
    "search": ("Search", "Search by words and by meaning, over documents and memories; rank fusion; adapters for embedders."),
    "store": ("The store", "Memories and whole turns in one database: how they are kept, and how they are forgotten together."),
    "train": ("Training", "Sequences, packing, one training loop, and adapters for many users."),
    "hybrid": ("Hybrid: documents beside memories", "The hybrid memory-retrieval model: both in one small prompt, and each sentence of an answer checked against its sources."),
    "malp": ("MaLP: dual-process memory", "Notes that are counted and promoted, simulated patients, injected knowledge, and a user's own weights."),
    "mark": ("MARK: refined memory", "Memories that experts correct: relevance, trust, conflict resolution, quorum, governance, poisoning."),
    "maprec": ("MAP: recommendation", "A profile of ratings that grows with each message, and what it predicts."),
    "": ("Records, Generative Agents, and programs", "What every part hands to the next; the fifth design; the demonstration, the command line, and `import memkit`."),
    "evaluate": ("Metrics", "How answers, rankings and predictions are scored, with intervals."),
    "experiments": ("Experiments", "Each table and figure of the four papers: ours beside theirs."),
    "arena": ("The arena", "Every memory on the same conversations, other people's memories too: what each finds, from how many tokens, and a leaderboard."),
    "benchmarks": ("Benchmarks", "Speed and size beside other libraries."),
    "widgets": ("Pictures and widgets", "Steppers, explorers and a chat. The book shows a still picture of each; `make lab` makes them move."),
}
APPENDIX = {"The parts of a turn": ["turn", "reading", "answer", "search", "models", "store", "train"],
            "The designs": ["hybrid", "malp", "mark", "maprec", ""],
            "Measurements": ["evaluate", "experiments", "arena", "benchmarks"],
            "Pictures": ["widgets"]}

# page: what people type who look for it, in other words than its own
SEARCH_WORDS = {
    "store/05_erase": "delete user data, what stays on the disk, backups, delete personal data, forget a user, remove a memory, right to be forgotten, right to erasure, GDPR, secure delete",
    "mark/06_builder": "withdraw a contribution, delete shared data, contributors, how many people before it is shared",
    "store/07_promises": "privacy, durability, data protection, deployment, scale out, several servers, production",
    "maprec/06_classical": "cold start, new user, baselines, collaborative filtering, matrix factorization, nearest neighbours",
    "maprec/08_own_ratings": "cold start, new item, content-based recommendation, gaussian process",
    "maprec/03_detection": "detect preference message, preference detection, intent detection, intent classification, intent encoder, classify a message",
    "maprec/04_frames": "entity linking, link a title to the catalogue, slot filling",
    "maprec/10_request_parsing": "query understanding, parse a request, filters of a request, named entity recognition, recognise people and countries",
    "maprec/09_recommend": "recommend a film, recommend a book, explain a recommendation, explanation",
    "maprec/05_prediction": "prefix tree, trie, shared prefix, rating prediction, predict stars, mean absolute error, calibration of a language model",
    "reading/09_title_reader": "which words are a title, how many stars, title recognition, words to stars, sentiment of a review, rating from words, opinion without a number, implicit rating",
    "search/01_bm25": "keyword search, full-text search, TF-IDF, inverse document frequency",
    "search/02_vectors": "semantic search, vector database, vector search, nearest neighbour search, approximate nearest neighbours, HNSW",
    "search/03_fusion": "hybrid search, reciprocal rank fusion, RRF, combine BM25 and embeddings",
    "search/04_documents": "document retrieval, retriever, chunking, groundedness, attribution, faithfulness",
    "search/05_memories": "memory retrieval, retrieve memories",
    "search/06_embedders": "in-batch negatives, InfoNCE, contrastive learning, fine-tune an embedder, fine-tune embeddings",
    "models/04_embed": "sentence embeddings, sentence transformers, text embedding",
    "models/03_endpoint": "OpenAI API, OpenAI-compatible server, remote model, vLLM, llama.cpp, API key",
    "models/02_local": "choose a model, change the model, KV cache, decoding, sampling, temperature, perplexity, negative log-likelihood",
    "turn/01_prompt": "context window, context length, token budget, prompt too long",
    "turn/02_stages": "pipeline, architecture, how it works",
    "turn/05_assistants": "plug-in, plugin, entry point, open an assistant",
    "turn/03_trace": "audit trail, provenance, logging",
    "hybrid/03_fallback": "calibration, reliability, abstention, decline to answer, refuse to answer, unanswerable question, hallucination, confidence threshold",
    "turn/04_engine": "async, await, asyncio, web service",
    "answer/01_scorer": "search old messages, message search, search the chat history, hybrid search over messages",
    "hybrid/04_chatbot": "RAG, retrieval-augmented generation, consent, medical chatbot",
    "hybrid/02_memory": "follow-up question, follow-up detection, conversation history, remember a conversation",
    "hybrid/01_corpus": "own documents, load documents, import documents",
    "answer/03_screening": "drug interaction, allergy warning, contraindication, safety check",
    "answer/04_stage": "emergency, abstain, answer routing",
    "answer/05_from_documents": "cross-encoder, rerank, reranker, passage ranking",
    "answer/06_entailment": "natural language inference, NLI, fact checking, hallucination detection",
    "answer/02_from_memory": "extractive answer, question answering over memory",
    "reading/06_times": "date parsing, relative dates, time expressions, temporal expressions",
    "reading/11_gate": "prompt injection, personal information, PII, privacy filter",
    "reading/07_facts": "information extraction, fact extraction, update a memory, contradiction",
    "reading/08_notes": "summarise a conversation, note taking",
    "reading/01_validation": "note validation, validate model output, parse JSON from a model, structured output",
    "train/02_loop": "early stopping, gradient clipping, gradient norm, learning rate warm-up, checkpoint, training loop",
    "train/01_sequences": "sequence packing, padding-free training",
    "train/03_adapters": "LoRA, low-rank adaptation, PEFT, serve many adapters, multi-LoRA, batch of users",
    "malp/11_personalize": "early stopping, LoRA for one user, fine-tune on user data, personalisation, personalization",
    "malp/02_triage": "eviction, promote to long-term memory, forgetting, triage, deduplicate memories, memory update",
    "malp/04_patients": "simulated users, synthetic data, simulated patients",
    "malp/10_injection": "knowledge injection, catastrophic forgetting, domain adapter",
    "mark/10_poisoning": "memory poisoning, misinformation, attack, lie",
    "mark/07_conflict_resolution": "conflict resolution, contradicting memories, merge memories",
    "mark/08_search": "access control, permissions, governance, roles",
    "mark/09_maintain": "memory decay, prune memories, forget stale memories, quorum, voting, consensus, whose word counts",
    "store/02_store": "database, SQLite, where is data stored, persistence",
    "store/03_schema": "PostgreSQL, Postgres, production database",
    "store/06_jobs": "background jobs, task queue, asynchronous learning",
    "experiments/02_gallery": "all figures, results of the papers, reproduce the tables",
    "experiments/malp/01_recall": "evidence recall, LoCoMo, MemoryBank",
    "experiments/malp/05_personal": "personal weights, whose weights, manner, style, control with other users",
    "arena/05_page": "leaderboard, compare memory systems, benchmark of memories",
    "arena/02_entrants": "mem0, LangGraph, other memory libraries",
    "evaluate/01_intervals": "confidence interval, bootstrap, significance",
    "arena/03_measures": "evaluation without a judge, automatic evaluation, recall of evidence",
    "evaluate/02_judge": "LLM as a judge, pairwise comparison, win rate",
    "93_package": "threshold, thresholds, cut-off, cut-offs, all thresholds, change a threshold, import memkit",
    "92_cli": "command line, commands, terminal",
    "walkthroughs/6_glossary": "definitions, terminology, vocabulary",
    "walkthroughs/7_teaching": "lesson plan, course, class, students",
    "walkthroughs/8_own_memory": "custom memory, write a design, extend memkit, own assistant",
    "widgets/draw/05_frames": "pandas, data frame, export turns",
}
