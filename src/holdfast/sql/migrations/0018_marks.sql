-- What was claimed before a mark is known by the number of its transaction, too. Nobody but builds between two releases has
-- had these functions.

drop function if exists claim_time();
drop function if exists release_unheard(text, uuid[], timestamptz);
