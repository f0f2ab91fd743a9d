"""No models: jobs live in the engine's own schema. Django tells only apps that have this module of its migrations."""
