-- Who may call what. Tables belong to the owner alone; every right is a right on a function.
-- Applied with every migration; role names are those of the schema in use.

revoke all on all functions in schema holdfast
  from public, holdfast_api, holdfast_worker, holdfast_operator, holdfast_client, holdfast_remote;
grant usage on schema holdfast to holdfast_api, holdfast_worker, holdfast_operator, holdfast_client, holdfast_remote;

-- Every role records intents, makes requests and reads.
grant execute on function
  holdfast.enqueue, holdfast.enqueue_many, holdfast.enqueue_plain, holdfast.submit, holdfast.submit_free,
  holdfast.release_held, holdfast.request, holdfast.get_jobs, holdfast.list_jobs, holdfast.get_attempts, holdfast.get_events,
  holdfast.get_progress, holdfast.get_items, holdfast.backlog, holdfast.summaries, holdfast.listed_ids,
  holdfast.attempts_page,
  holdfast.events_page, holdfast.items_page, holdfast.payload_limit, holdfast.accepted_payloads, holdfast.answered_key, holdfast.count_repeats,
  holdfast.other_names
to holdfast_api, holdfast_worker, holdfast_operator;

-- Only workers move jobs and do maintenance.
grant execute on function
  holdfast.claim, holdfast.claim_from, holdfast.claim_jobs, holdfast.claim_by_id, holdfast.claimed_payloads,
  holdfast.may_begin, holdfast.record_beginnings, holdfast.renew, holdfast.interrupted,
  holdfast.complete, holdfast.fail, holdfast.snooze, holdfast.hand_back, holdfast.stop, holdfast.hand_back_unheard,
  holdfast.release, holdfast.release_unknown, holdfast.release_unheard, holdfast.claim_mark,
  holdfast.report, holdfast.last_cursor, holdfast.result_limit, holdfast.worker_settings, holdfast.is_quiet, holdfast.stopped_by,
  holdfast.eligible_streams, holdfast.open_streams, holdfast.ready_streams, holdfast.work_left,
  holdfast.register_worker, holdfast.enlist_worker, holdfast.enlist, holdfast.other_shapes, holdfast.beat, holdfast.beat_with_slots,
  holdfast.unregister_worker, holdfast.publish_types,
  holdfast.queue_depths, holdfast.lead, holdfast.preside, holdfast.resign, holdfast.unheard, holdfast.recover, holdfast.ended_attempts, holdfast.review_leases,
  holdfast.clamp_leases, holdfast.clamp_rates, holdfast.clamp_backoff, holdfast.promote, holdfast.elect, holdfast.age, holdfast.sweep,
  holdfast.execute_requests, holdfast.reconcile, holdfast.drop_strays, holdfast.headless_targets,
  holdfast.retire, holdfast.forget_workers, holdfast.admit, holdfast.forget_permits,
  holdfast.promote_due, holdfast.promote_behind, holdfast.elect_from, holdfast.age_from, holdfast.age_lines, holdfast.reconcile_pages,
  holdfast.retire_from,
  holdfast.drop_stray_leases, holdfast.drop_stray_entries, holdfast.drop_stray_due, holdfast.show_hidden,
  holdfast.replace_heads, holdfast.seat_headless, holdfast.forget_idle_permits, holdfast.retire_known,
  holdfast.offer, holdfast.serve_ready, holdfast.forget_streams,
  holdfast.add_failures, holdfast.drop_recovered, holdfast.forget_fingerprints, holdfast.read_letters, holdfast.note_held,
  holdfast.turn_bulk, holdfast.advance_bulk, holdfast.forget_bulks, holdfast.forget_pulls,
  holdfast.sync_circuits, holdfast.try_probe, holdfast.end_probe, holdfast.put_off,
  holdfast.declare_schedules, holdfast.due_schedules, holdfast.fire_schedules, holdfast.refuse_schedule,
  holdfast.rewind_schedules, holdfast.retire_schedules, holdfast.forget_fires,
  holdfast.note_dormant, holdfast.drop_stray_dormant
to holdfast_worker;

-- The control plane: one tenant at a time, by functions that require the tenant.
grant execute on function
  holdfast.submit, holdfast.submit_free, holdfast.refused_intents, holdfast.public_jobs, holdfast.job_standings, holdfast.visible_jobs,
  holdfast.job_result, holdfast.tenant_items,
  holdfast.tenant_items_page, holdfast.payload_limit, holdfast.accepted_payloads, holdfast.answered_key, holdfast.count_repeats,
  holdfast.tenant_request, holdfast.waiting_jobs, holdfast.find_key, holdfast.touch_keys, holdfast.probe,
  holdfast.issue_events_token, holdfast.find_events_token
to holdfast_client;

-- Workers over HTTP claim and report, each for its own tenant.
grant execute on function
  holdfast.remote_pull, holdfast.remote_report, holdfast.remote_extend, holdfast.remote_release, holdfast.remote_beat,
  holdfast.remote_stock, holdfast.remote_news, holdfast.remote_repeats
to holdfast_remote;

grant execute on function
  holdfast.create_key, holdfast.rotate_key, holdfast.revoke_key, holdfast.list_keys, holdfast.list_audit,
  holdfast.search_jobs, holdfast.job_statistics, holdfast.job_totals, holdfast.attempts_after, holdfast.events_after,
  holdfast.keys_after, holdfast.correlated_ids, holdfast.job_family, holdfast.clean_up_as, holdfast.list_failures
to holdfast_operator;

-- Steering, and what operators see of it.
grant execute on function
  holdfast.pause_subject, holdfast.resume_subject, holdfast.list_steering, holdfast.claims_ended,
  holdfast.pause_scope, holdfast.resume_scope, holdfast.pause_scope_as, holdfast.resume_scope_as, holdfast.set_limit, holdfast.set_weight, holdfast.change_limits,
  holdfast.operator_request, holdfast.operator_request_as, holdfast.resolve_job, holdfast.list_controls, holdfast.list_queues, holdfast.list_types,
  holdfast.list_lanes, holdfast.lane_slots, holdfast.list_tenants, holdfast.close_type, holdfast.open_type, holdfast.list_closed_types,
  holdfast.drain_state, holdfast.drain_progress, holdfast.list_targets, holdfast.show_targets, holdfast.explain
to holdfast_operator;

-- Dead letters and bulk operations.
grant execute on function
  holdfast.search_letters, holdfast.get_letters, holdfast.acknowledge_letters, holdfast.requeue_letters,
  holdfast.preview_bulk, holdfast.start_bulk, holdfast.stop_bulk, holdfast.list_bulks,
  holdfast.is_maintained
to holdfast_operator;

-- Circuit breakers.
grant execute on function
  holdfast.list_circuits, holdfast.reset_circuit, holdfast.open_circuit
to holdfast_operator;

-- Schedules.
grant execute on function
  holdfast.put_schedule, holdfast.pause_schedule, holdfast.resume_schedule, holdfast.delete_schedule, holdfast.run_schedule,
  holdfast.list_schedules, holdfast.list_fires
to holdfast_operator;

-- What operators read with psql.
grant usage on schema holdfast_views to holdfast_operator;
grant select on
  holdfast.dead_letter_jobs, holdfast.job_queue_health, holdfast.circuit_breakers,
  holdfast_views.dead_letter_jobs, holdfast_views.job_queue_health, holdfast_views.circuit_breakers,
  holdfast_views.jobs, holdfast_views.job_attempts
to holdfast_operator;

-- Settings of the installation.
grant execute on function holdfast.list_settings, holdfast.change_setting, holdfast.list_workers, holdfast.quiet_worker
to holdfast_operator;

-- What operators decide about single jobs.
grant execute on function holdfast.act_by_hand to holdfast_operator;

-- Statements of clients make moments readable that they could not parse.
grant execute on function holdfast.readable
to holdfast_api, holdfast_worker, holdfast_operator, holdfast_client, holdfast_remote;

-- The address and request id of a caller.
grant execute on function holdfast.as_caller to holdfast_client, holdfast_operator;

grant execute on function holdfast.verify to holdfast_worker, holdfast_operator;

-- Every process reads the current step when it starts.
grant select on holdfast.schema_steps
to holdfast_api, holdfast_worker, holdfast_operator, holdfast_client, holdfast_remote;
