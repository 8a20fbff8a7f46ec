from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [
        ("resty_qless", "0003_jobgroup"),
    ]

    operations = [
        migrations.AlterModelOptions(
            name="job",
            options={
                "base_manager_name": "objects",
                "default_permissions": ("view",),
                "managed": False,
                "permissions": [
                    ("retry_job", "Can retry, move and time out jobs, and run scheduled and recurring jobs now"),
                    ("cancel_job", "Can cancel jobs"),
                    ("edit_job", "Can change priority, tags, tracking and dependencies of jobs, and recurring jobs"),
                    (
                        "start_job",
                        "Can start jobs with arguments of their choice: new and repeated jobs, recurring jobs",
                    ),
                    ("pause_queue", "Can pause and unpause queues"),
                    ("configure_jobs", "Can change options, forget queues and deregister workers"),
                    (
                        "control_worker",
                        "Can quiet, resume, stop and scale workers, and request the stacks of their jobs",
                    ),
                ],
                "verbose_name": "job",
                "verbose_name_plural": "jobs",
            },
        ),
    ]
